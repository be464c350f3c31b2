"""GET /v1/workload: what waits, what runs, and who is there to run it."""

from datetime import UTC, datetime, timedelta
from typing import Any

from lango.server.auth.callers import Caller
from tests.server.served_apps import ServedApp


async def workload(served: ServedApp, name: str = "admin") -> dict[str, Any]:
    other = served.callers["other-ann"].tenant
    for known, tenant in (("admin", served.tenant), ("other-admin", other)):
        served.callers[known] = Caller(tenant, None, frozenset({"admin"}), f"key_{known}")
    async with served.client(name) as client:
        answer = await client.get("/v1/workload")
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_who_waits_and_since_when(served: ServedApp) -> None:
    nothing = await workload(served)
    assert nothing["turns"] == {"scheduled": 0, "queued": 0, "running": 0, "input_required": 0}
    assert (nothing["oldest_queued"], nothing["running"]) == (None, [])
    session = await served.session()
    for number in range(3):
        await served.turn(session, f"m{number}")
    tomorrow = (datetime.now(UTC) + timedelta(days=1)).isoformat()
    await served.turn(session, "later", run_at=tomorrow)
    result = await workload(served)
    assert result["turns"] == {"scheduled": 1, "queued": 3, "running": 0, "input_required": 0}
    async with served.client() as client:
        turns = (await client.get(f"/v1/sessions/{session}/turns")).json()["turns"]
    assert result["oldest_queued"] == min(turn["created"] for turn in turns)
    assert (await workload(served, "other-admin"))["turns"]["queued"] == 0


async def test_what_runs_and_where(served: ServedApp) -> None:
    session = await served.session()
    turn = await served.turn(session, 'call hold {"name": "go"}')
    async with served.worker() as worker:
        effects = served.process.workspace.effects
        await effects.wait(lambda words: "held go" in words)
        result = await workload(served)
        [running] = result["running"]
        assert (running["turn"], running["session"]) == (turn, session)
        assert (running["app"], running["user"], running["attempts"]) == (served.agent, "ann", 1)
        [own] = [one for one in result["workers"] if one["id"] == running["worker"]]
        assert (own["apps"], own["running"]) == ([served.agent], 1)
        assert own["started"] <= own["seen"]
        others = (await workload(served, "other-admin"))["workers"]
        assert [one["running"] for one in others if one["id"] == own["id"]] == [0]
        effects.path.with_name("go").touch()
        await served.turns().wait(turn)
    assert worker
    result = await workload(served)
    assert own["id"] not in [one["id"] for one in result["workers"]]


async def test_a_turn_that_waits_for_an_approval(served: ServedApp) -> None:
    session = await served.session()
    async with served.worker():
        await served.turns().wait(await served.turn(session, 'call pay {"amount": 1}'))
    assert (await workload(served))["turns"]["input_required"] == 1
