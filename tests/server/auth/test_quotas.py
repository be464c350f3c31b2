"""What a tenant may have in the database at a time."""

from typing import Any

import httpx
import pytest

from faults.turns.workspace import Workspace
from lango.config.server import QuotaSettings
from lango.server.auth import quotas
from tests.server.served_apps import ServedApp, served_app


@pytest.fixture
def read_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Usage is read from the database for every request."""
    monkeypatch.setattr(quotas, "FRESH", -1.0)
    monkeypatch.setattr(quotas, "HISTORY_FRESH", -1.0)


async def submit(served: ServedApp, session: str, name: str = "ann", **body: Any) -> httpx.Response:
    async with served.client(name) as client:
        return await client.post(f"/v1/sessions/{session}/turns", json={"message": "hi", **body})


async def upload(served: ServedApp, session: str, size: int) -> httpx.Response:
    async with served.client(content_type="text/plain") as client:
        path = f"/v1/sessions/{session}/files"
        return await client.post(path, params={"name": f"{size}.txt"}, content=b"x" * size)


def refused(answer: httpx.Response, words: str) -> None:
    body = answer.json()
    assert (answer.status_code, body["type"]) == (429, "urn:lango:error:quota")
    assert words in body["detail"]
    assert int(answer.headers["retry-after"]) >= 1


@pytest.mark.usefixtures("read_each_time")
async def test_a_tenant_has_so_many_open_turns(workspace: Workspace, tenant: str) -> None:
    async with served_app(workspace, tenant, quotas=QuotaSettings(open_turns=3)) as served:
        anns, bobs = await served.session(), await served.session("bob")
        first = await served.turn(anns, "hi")
        await served.turn(anns, "hi", run_at="2099-01-01T00:00:00Z")
        await served.turn(bobs, "hi", "bob")
        refused(await submit(served, anns), "may have 3 open turns")
        refused(await submit(served, bobs, "bob"), "may have 3 open turns")
        others = await served.session("other-ann")
        assert (await submit(served, others, "other-ann")).status_code == 202
        await served.turns().cancel(first)
        assert (await submit(served, anns)).status_code == 202


async def test_turns_accepted_since_the_last_look_count(
    sqlite_workspace: Workspace, tenant: str
) -> None:
    async with served_app(sqlite_workspace, tenant, quotas=QuotaSettings(open_turns=2)) as served:
        session = await served.session()
        assert [(await submit(served, session)).status_code for _ in range(4)] == [
            *(202, 202),
            *(429, 429),
        ]


@pytest.mark.usefixtures("read_each_time")
async def test_a_repeated_request_gets_its_turn_at_the_quota(
    workspace: Workspace, tenant: str
) -> None:
    async with served_app(workspace, tenant, quotas=QuotaSettings(open_turns=1)) as served:
        session = await served.session()
        async with served.client(idempotency_key="k") as client:
            path = f"/v1/sessions/{session}/turns"
            first = await client.post(path, json={"message": "hi"})
            again = await client.post(path, json={"message": "hi"})
            other = await client.post(path, json={"message": "ho"})
        assert (again.status_code, again.json()["id"]) == (202, first.json()["id"])
        assert (other.status_code, other.json()["type"]) == (409, "urn:lango:error:turn-conflict")
        refused(await submit(served, session), "may have 1 open turns")


@pytest.mark.usefixtures("read_each_time")
async def test_the_history_of_a_tenant_is_limited(workspace: Workspace, tenant: str) -> None:
    async with served_app(workspace, tenant, quotas=QuotaSettings(history_tokens=500)) as served:
        session, second = await served.session(), await served.session("bob")
        async with served.worker():
            await served.turns().wait(await served.turn(session, "hi " * 1_000))
        refused(await submit(served, session), "may have 500 tokens")
        refused(await submit(served, second, "bob"), "may have 500 tokens")
        others = await served.session("other-ann")
        assert (await submit(served, others, "other-ann")).status_code == 202
        async with served.client() as client:
            assert (await client.delete(f"/v1/sessions/{session}")).status_code == 204
        assert (await submit(served, second, "bob")).status_code == 202


async def test_a_repeated_request_counts_once(sqlite_workspace: Workspace, tenant: str) -> None:
    async with served_app(sqlite_workspace, tenant, quotas=QuotaSettings(open_turns=2)) as served:
        session = await served.session()
        async with served.client(idempotency_key="k") as client:
            path = f"/v1/sessions/{session}/turns"
            for _ in range(5):
                assert (await client.post(path, json={"message": "hi"})).status_code == 202
        assert (await submit(served, session)).status_code == 202
        refused(await submit(served, session), "may have 2 open turns")


@pytest.mark.usefixtures("read_each_time")
async def test_a_repeated_retry_gets_its_turn_at_the_quota(
    workspace: Workspace, tenant: str
) -> None:
    async with served_app(workspace, tenant, quotas=QuotaSettings(open_turns=1)) as served:
        turn = await served.turn(await served.session(), "hi")
        await served.turns().cancel(turn)
        async with served.client() as client:
            answers = [await client.post(f"/v1/turns/{turn}/retry") for _ in range(2)]
        assert [answer.status_code for answer in answers] == [202, 202]
        assert answers[0].json()["id"] == answers[1].json()["id"]


@pytest.mark.usefixtures("read_each_time")
async def test_a_repeated_answer_gets_its_turn_at_the_quota(
    workspace: Workspace, tenant: str
) -> None:
    async with served_app(workspace, tenant, quotas=QuotaSettings(open_turns=1)) as served:
        session = await served.session()
        async with served.worker():
            turn = await served.turn(session, 'call pay {"amount": 3}')
            waiting = await served.turns().wait(turn)
        body = {"call": waiting.waits_for[0], "approved": True}
        path = f"/v1/turns/{turn}/approvals"
        async with served.client(idempotency_key="k") as client:
            answers = [await client.post(path, json=body) for _ in range(2)]
        assert [answer.status_code for answer in answers] == [202, 202]
        assert answers[0].json()["id"] == answers[1].json()["id"]
        async with served.client() as client:
            second = await client.post(path, json=body)
        assert (second.status_code, second.json()["type"]) == (409, "urn:lango:error:turn-conflict")


@pytest.mark.usefixtures("read_each_time")
async def test_a_repeated_result_gets_its_turn_at_the_quota(
    workspace: Workspace, tenant: str
) -> None:
    async with served_app(workspace, tenant, quotas=QuotaSettings(open_turns=1)) as served:
        async with served.worker():
            turn = await served.turn(await served.session(), 'call errand {"name": "a"}')
            waiting = await served.turns().wait(turn)
        body = {"call": waiting.waits_for[0], "result": "done"}
        async with served.client() as client:
            answers = [await client.post(f"/v1/turns/{turn}/results", json=body) for _ in range(2)]
        assert [answer.status_code for answer in answers] == [202, 202]
        assert answers[0].json()["id"] == answers[1].json()["id"]


@pytest.mark.usefixtures("read_each_time")
async def test_a_repeated_completion_gets_its_answer_at_the_quota(
    workspace: Workspace, tenant: str
) -> None:
    async with served_app(workspace, tenant, quotas=QuotaSettings(open_turns=1)) as served:
        body = {"model": served.agent, "messages": [{"role": "user", "content": "hi"}]}
        async with served.client(idempotency_key="k") as client, served.worker():
            first = await client.post("/openai/v1/chat/completions", json=body)
            session = await served.session()
            await served.turn(session, "hi", run_at="2099-01-01T00:00:00Z")
            again = await client.post("/openai/v1/chat/completions", json=body)
        assert (first.status_code, again.status_code) == (200, 200), again.text
        assert first.headers["lango-turn"] == again.headers["lango-turn"]
        refused(await submit(served, session), "may have 1 open turns")


@pytest.mark.usefixtures("read_each_time")
async def test_the_files_of_a_tenant_take_so_many_bytes(workspace: Workspace, tenant: str) -> None:
    async with served_app(workspace, tenant, quotas=QuotaSettings(file_bytes=1_000)) as served:
        one, two = await served.session(), await served.session()
        assert (await upload(served, one, 600)).status_code == 201
        refused(await upload(served, two, 401), "600 are taken")
        assert (await upload(served, two, 400)).status_code == 201
        async with served.client() as client:
            assert (await client.delete(f"/v1/sessions/{one}")).status_code == 204
        assert (await upload(served, two, 600)).status_code == 201


async def test_without_a_quota_nothing_is_counted(sqlite_workspace: Workspace, tenant: str) -> None:
    unlimited = QuotaSettings(open_turns=None, file_bytes=None, history_tokens=None)
    async with served_app(sqlite_workspace, tenant, quotas=unlimited) as served:
        session = await served.session()
        assert (await submit(served, session)).status_code == 202
        assert (await upload(served, session, 10)).status_code == 201
