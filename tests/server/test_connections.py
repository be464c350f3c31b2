"""Connections: whoever is slow to say what it wants, or is one too many, is told so."""

import asyncio
import importlib
import logging
import sys
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import httpx
import pytest
import pytest_asyncio

from faults.turn_place import Place
from lango.errors import ConfigError
from lango.server.problems import MEDIA_TYPE
from tests.server.places import PATIENCE, House, Live, client_of, house, live

HEALTH = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
POST = b"POST /v1/sessions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
LATE = b"HTTP/1.1 408 "


def test_an_installation_without_a_server_says_what_it_needs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delitem(sys.modules, "lango.server.connections")
    monkeypatch.setitem(sys.modules, "uvicorn.protocols.http.httptools_impl", None)
    with pytest.raises(ConfigError, match=r'pip install "lango-adk\[server\]"'):
        importlib.import_module("lango.server.connections")


@pytest_asyncio.fixture
async def hasty(small: House, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Live]:
    """A server that does not wait long for anybody."""
    monkeypatch.setattr("lango.server.connections.PATIENCE", 2.0)
    async with live(small) as opened:
        yield opened


@asynccontextmanager
async def connected(
    server: Live,
) -> AsyncGenerator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    port = int(server.url.rpartition(":")[2])
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield reader, writer
    finally:
        writer.close()


async def said_to(server: Live, sent: bytes) -> bytes:
    """What a client hears that sends this and no more, up to the end of its connection."""
    async with connected(server) as (reader, writer), asyncio.timeout(PATIENCE):
        writer.write(sent)
        return await reader.read()


@pytest.mark.parametrize("sent", [b"", HEALTH[:30]], ids=["nothing", "half a head"])
async def test_who_does_not_say_what_it_wants_is_sent_away(sent: bytes, hasty: Live) -> None:
    assert (await said_to(hasty, sent)).startswith(LATE)
    async with hasty.client() as client:
        assert (await client.get("/healthz")).status_code == 200


async def test_a_head_without_end_is_not_read(small: House) -> None:
    async with live(small) as server:
        heard = await said_to(server, HEALTH[:-2] + b"X-More: 0\r\n" * 6_000)
    assert heard.startswith(b"HTTP/1.1 431 ")


async def test_what_is_sent_behind_an_answer_is_not_read(small: House) -> None:
    piece, pieces = bytes(65_536), 10_000

    async def send(writer: asyncio.StreamWriter) -> None:
        for _ in range(pieces):
            writer.write(piece)
            await writer.drain()

    async with live(small) as server, connected(server) as (_, writer):
        writer.write(POST + f"Content-Length: {len(piece) * pieces}\r\n\r\n".encode())
        with pytest.raises(ConnectionError):
            await asyncio.wait_for(send(writer), PATIENCE)


async def test_a_second_request_has_to_come_as_well(hasty: Live) -> None:
    async with connected(hasty) as (reader, writer), asyncio.timeout(PATIENCE):
        writer.write(HEALTH)
        heard = await reader.readuntil(b"}")
        writer.write(HEALTH[:30])
        assert (await reader.read()).startswith(LATE)
    assert heard.startswith(b"HTTP/1.1 200 ")


async def test_a_body_that_stops_is_not_waited_for(
    hasty: Live, caplog: pytest.LogCaptureFixture
) -> None:
    heard = await said_to(hasty, POST + b'Content-Length: 100\r\n\r\n{"app": ')
    assert heard == b""  # the request was there, and what is not answered is cut off
    assert [each for each in caplog.records if each.levelno >= logging.WARNING] == []


async def test_an_answer_may_take_its_time(hasty: Live) -> None:
    house = hasty.house
    turn = await house.turn(await house.session(), 'call hold {"name": "go"}')
    async with hasty.client() as client, house.worker():
        path = f"/v1/turns/{turn}/events"
        async with client.stream("GET", path) as response:
            lines = response.aiter_lines()
            async for line in lines:
                if line == "event: tool.started":
                    break
            await asyncio.sleep(3.0)  # longer than anybody's request would be waited for
            (house.here.place.folder / "go").touch()
            assert "event: completed" in [line async for line in lines]


async def asked(server: Live, path: str) -> httpx.Response:
    """The answer to a connection of its own."""
    async with client_of(None, server.url, "ann") as client:
        return await client.get(path)


async def test_one_too_many_is_told_to_come_back(
    sqlite_place: Place, tenant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lango.server.serving.BESIDE_STREAMS", 2)
    async with AsyncExitStack() as others, house(sqlite_place, tenant, max_streams=1) as served:
        server = await others.enter_async_context(live(served))
        for _ in range(2):
            await others.enter_async_context(connected(server))
        async with connected(server):
            busy = await asked(server, "/v1/agents")
            assert (busy.status_code, busy.headers["content-type"]) == (503, MEDIA_TYPE)
            assert busy.json()["type"] == "urn:lango:error:server-busy"
            assert (busy.headers["retry-after"], busy.headers["connection"]) == ("1", "close")
            assert (await asked(server, "/healthz")).status_code == 200
        async with asyncio.timeout(PATIENCE):
            while (await asked(server, "/v1/agents")).status_code == 503:  # noqa: ASYNC110
                await asyncio.sleep(0.01)  # nobody tells when the server has seen that one is gone
        assert (await asked(server, "/v1/agents")).status_code == 200
