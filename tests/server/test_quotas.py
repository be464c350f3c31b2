"""What a tenant may have in the database at a time."""

from typing import Any

import httpx
import pytest

from faults.turn_place import Place
from lango.config.settings import QuotaSettings
from lango.server import quotas
from tests.server.places import House, house


@pytest.fixture
def read_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Usage is read from the database for every request."""
    monkeypatch.setattr(quotas, "FRESH", -1.0)


async def submit(served: House, session: str, name: str = "ann", **body: Any) -> httpx.Response:
    async with served.client(name) as client:
        return await client.post(f"/v1/sessions/{session}/turns", json={"message": "hi", **body})


async def upload(served: House, session: str, size: int) -> httpx.Response:
    async with served.client(content_type="text/plain") as client:
        path = f"/v1/sessions/{session}/files"
        return await client.post(path, params={"name": f"{size}.txt"}, content=b"x" * size)


def refused(answer: httpx.Response, words: str) -> None:
    told = answer.json()
    assert (answer.status_code, told["type"]) == (429, "urn:lango:error:quota")
    assert words in told["detail"]
    assert int(answer.headers["retry-after"]) >= 1


@pytest.mark.usefixtures("read_each_time")
async def test_a_tenant_has_so_many_open_turns(place: Place, tenant: str) -> None:
    async with house(place, tenant, quotas=QuotaSettings(open_turns=3)) as served:
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


async def test_turns_accepted_since_the_last_look_count(sqlite_place: Place, tenant: str) -> None:
    async with house(sqlite_place, tenant, quotas=QuotaSettings(open_turns=2)) as served:
        session = await served.session()
        assert [(await submit(served, session)).status_code for _ in range(4)] == [
            *(202, 202),
            *(429, 429),
        ]


@pytest.mark.usefixtures("read_each_time")
async def test_the_files_of_a_tenant_take_so_many_bytes(place: Place, tenant: str) -> None:
    async with house(place, tenant, quotas=QuotaSettings(file_bytes=1_000)) as served:
        one, two = await served.session(), await served.session()
        assert (await upload(served, one, 600)).status_code == 201
        refused(await upload(served, two, 401), "600 are taken")
        assert (await upload(served, two, 400)).status_code == 201
        async with served.client() as client:
            assert (await client.delete(f"/v1/sessions/{one}")).status_code == 204
        assert (await upload(served, two, 600)).status_code == 201


async def test_without_a_quota_nothing_is_counted(sqlite_place: Place, tenant: str) -> None:
    unlimited = QuotaSettings(open_turns=None, file_bytes=None)
    async with house(sqlite_place, tenant, quotas=unlimited) as served:
        session = await served.session()
        assert (await submit(served, session)).status_code == 202
        assert (await upload(served, session, 10)).status_code == 201
