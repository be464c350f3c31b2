"""The hosts a server answers for."""

import pytest

from faults.turns.workspace import Workspace
from lango.server.http.hosts import host_of
from tests.server.served_apps import ServedApp, served_app


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:8000", "127.0.0.1:1", "[::1]:8000"])
async def test_loopback_is_answered(host: str, sqlite_served: ServedApp) -> None:
    async with sqlite_served.client(host=host) as client:
        assert (await client.get("/v1/agents")).status_code == 200


@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example", "", "127.0.0.1.x"])
async def test_others_are_not(host: str, sqlite_served: ServedApp) -> None:
    async with sqlite_served.client(host=host) as client:
        answer = await client.get("/v1/agents")
        assert (answer.status_code, answer.json()["type"]) == (421, "urn:lango:error:wrong-host")
        assert (await client.get("/healthz")).status_code == 200


async def test_hosts_are_allowed_by_name_and_by_domain(
    sqlite_workspace: Workspace, tenant: str
) -> None:
    allowed = ("api.example", "*.pods.example")
    async with served_app(sqlite_workspace, tenant, allowed_hosts=allowed) as served:
        for host, status in {
            "api.example": 200,
            "a.pods.example": 200,
            "pods.example": 421,
            "xpods.example": 421,
            "localhost": 421,
        }.items():
            async with served.client(host=host) as client:
                assert (await client.get("/v1/agents")).status_code == status, host


async def test_any_host_can_be_allowed(sqlite_workspace: Workspace, tenant: str) -> None:
    async with (
        served_app(sqlite_workspace, tenant, allowed_hosts=("*",)) as served,
        served.client(host="whatever.example") as client,
    ):
        assert (await client.get("/v1/agents")).status_code == 200


@pytest.mark.parametrize(
    ("header", "host"), [("A:1", "a"), ("a", "a"), ("[::1]:80", "::1"), ("[::1]", "::1"), ("", "")]
)
def test_the_name_in_a_header(header: str, host: str) -> None:
    assert host_of(header) == host


async def test_two_hosts_are_none(sqlite_served: ServedApp) -> None:
    headers = [("Host", "localhost"), ("Host", "localhost")]
    async with sqlite_served.client() as client:
        assert (await client.get("/v1/agents", headers=headers)).status_code == 421
