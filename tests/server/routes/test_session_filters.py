"""Sessions by their status and by when they were last active."""

from datetime import UTC, datetime, timedelta
from typing import Any

from tests.server.served_apps import ServedApp


async def found(served: ServedApp, **query: Any) -> list[str]:
    async with served.client() as client:
        answer = await client.get("/v1/sessions", params=query)
    assert answer.status_code == 200, answer.text
    return [one["id"] for one in answer.json()["sessions"]]


async def status(served: ServedApp, session: str) -> str | None:
    async with served.client() as client:
        return (await client.get(f"/v1/sessions/{session}")).json()["status"]


async def test_the_status_is_that_of_the_newest_turn(served: ServedApp) -> None:
    silent, done, asks, queued = [await served.session() for _ in range(4)]
    async with served.worker():
        for session, message in ((done, "hi"), (asks, 'call pay {"amount": 1}')):
            await served.turns().wait(await served.turn(session, message))
    await served.turn(queued, "later")
    states = {silent: None, done: "completed", asks: "input_required", queued: "queued"}
    for session, state in states.items():
        assert await status(served, session) == state
        if state is not None:
            assert await found(served, status=state) == [session]
    assert await found(served, status="failed") == []
    assert set(await found(served)) == set(states)


async def test_a_session_runs_while_one_of_its_turns_does(served: ServedApp) -> None:
    session = await served.session()
    await served.turn(session, 'call hold {"name": "go"}')
    async with served.worker():
        effects = served.process.workspace.effects
        await effects.wait(lambda words: "held go" in words)
        queued = await served.turn(session, "behind it")
        assert await status(served, session) == "running"
        assert await found(served, status="running") == [session]
        assert await found(served, status="queued") == []
        effects.path.with_name("go").touch()
        await served.turns().wait(queued)
    assert await status(served, session) == "completed"


async def test_when_it_was_last_active(served: ServedApp) -> None:
    session = await served.session()
    now, hour = datetime.now(UTC), timedelta(hours=1)
    before, after = (now - hour).isoformat(), (now + hour).isoformat()
    assert await found(served, since=before, until=after) == [session]
    assert await found(served, since=after) == []
    assert await found(served, until=before) == []


async def test_filters_that_make_no_sense(sqlite_served: ServedApp) -> None:
    async with sqlite_served.client() as client:
        for query in ({"status": "odd"}, {"since": "yesterday"}, {"until": "2026-01-01"}):
            assert (await client.get("/v1/sessions", params=query)).status_code == 422
