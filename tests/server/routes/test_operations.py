"""What operators of a tenant see and do: workers, failed turns, calls that wait, retries."""

from collections.abc import AsyncIterator
from typing import Any

import pytest_asyncio

from lango.providers.base import ModelRequest
from lango.server.auth.callers import Caller
from lango.testing import Reply, ScriptedProvider
from tests.server.served_apps import ServedApp

ADMIN = frozenset({"admin"})


@pytest_asyncio.fixture
async def operated(served: ServedApp) -> AsyncIterator[ServedApp]:
    """A server that also knows an admin, and one of another tenant."""
    other = served.callers["other-ann"].tenant
    served.callers["admin"] = Caller(served.tenant, None, ADMIN, "key_admin")
    served.callers["other-admin"] = Caller(other, None, ADMIN, "key_other_admin")
    yield served


async def got(served: ServedApp, path: str, name: str = "admin") -> dict[str, Any]:
    async with served.client(name) as client:
        answer = await client.get(f"/v1/{path}")
    assert answer.status_code == 200, answer.text
    return answer.json()


def broken(request: ModelRequest) -> Reply:
    """A model that raises what is not lango's."""
    raise LookupError(f"no answer to {request.messages[-1].content}")


async def failed(served: ServedApp) -> tuple[str, str]:
    """A turn of ann's that failed: its session's id and its own."""
    session = await served.session()
    turn = await served.turn(session, "hi")
    assert (await served.turns().wait(turn)).state == "failed"
    return session, turn


async def test_the_workers(operated: ServedApp) -> None:
    async with operated.worker() as worker:
        [own] = [
            one
            for one in (await got(operated, "workers"))["workers"]
            if one["id"] == worker.worker.id
        ]
        assert (own["state"], own["running"]) == ("alive", 0)
        assert list(own["versions"]) == [operated.agent]
        assert own["started"] <= own["seen"]
        assert not {"host", "pid"} & own.keys()
    ids = [one["id"] for one in (await got(operated, "workers"))["workers"]]
    assert worker.worker.id not in ids


async def test_a_failed_turn_is_retried_by_an_admin(operated: ServedApp) -> None:
    async with operated.worker(provider=ScriptedProvider(rule=broken)):
        session, turn = await failed(operated)
        [failure] = (await got(operated, "failures"))["failures"]
        assert (failure["turn"], failure["session"], failure["user"]) == (turn, session, "ann")
        assert failure["error"] == "InternalError"
        assert failure["cause"]["type"] == "LookupError"
        assert failure["cause"]["message"] == "no answer to hi"
        assert failure["retry"] is None
        assert (await got(operated, "failures", "other-admin"))["failures"] == []
        assert (await got(operated, "failures?since=2100-01-01T00:00:00Z"))["failures"] == []
        assert (await got(operated, "failures?app=other"))["failures"] == []
        path = f"/v1/turns/{turn}/retry"
        async with operated.client("other-admin") as stranger, operated.client("bob") as bob:
            assert (await stranger.post(path)).status_code == 404
            assert (await bob.post(path)).status_code == 404
        async with operated.client("admin") as admin:
            new = (await admin.post(path)).json()
            assert (new["session"], new["user"]) == (session, "ann")
            assert (await admin.post(path)).json()["id"] == new["id"]
        await operated.turns().wait(new["id"])
        [first] = [
            one for one in (await got(operated, "failures"))["failures"] if one["turn"] == turn
        ]
        assert first["retry"] == new["id"]
        page = await got(operated, "failures?limit=1")
        assert (len(page["failures"]), page["more"]) == (1, True)


async def test_the_calls_that_wait(operated: ServedApp) -> None:
    session = await operated.session()
    async with operated.worker():
        turn = await operated.turn(session, 'call pay {"amount": 1}')
        await operated.turns().wait(turn)
    page = await got(operated, "approvals")
    [waiting] = page["turns"]
    assert (waiting["turn"], waiting["session"], waiting["user"]) == (turn, session, "ann")
    [call] = waiting["calls"]
    assert (call["kind"], call["tool"]) == ("approval", "pay")
    assert '"amount"' in call["arguments"]
    assert page["more"] is False
    assert (await got(operated, "approvals", "other-admin"))["turns"] == []
    assert (await got(operated, "approvals?app=other"))["turns"] == []


async def test_the_queue_by_app(operated: ServedApp) -> None:
    session = await operated.session()
    for number in range(2):
        await operated.turn(session, f"m{number}")
    [load] = (await got(operated, "workload"))["apps"]
    assert (load["app"], load["queued"], load["running"]) == (operated.agent, 2, 0)
    assert load["queued_for"] >= 0
    assert (await got(operated, "workload"))["held"] is False
    assert (await got(operated, "workload", "other-admin"))["apps"] == []
