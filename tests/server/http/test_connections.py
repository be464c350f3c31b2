"""Connections: the server refuses slow requests and connections above the limit."""

import asyncio
import importlib
import logging
import re
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import cast

import httpx
import pytest
import pytest_asyncio

from faults.turns.workspace import Workspace
from lango.core.current import WithRequestId
from lango.errors import ConfigError
from lango.server.http.connections import (
    MAX_PIPELINED,
    RESERVE,
    ConnectionLimit,
    LimitedProtocol,
    OpenConnections,
    connection_limit,
)
from lango.server.http.problems import MEDIA_TYPE
from tests.server.served_apps import PATIENCE, Live, ServedApp, client_of, live, served_app

HEALTH = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
POST = b"POST /v1/sessions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
HALF = POST + b'Authorization: Bearer ann\r\nContent-Length: 100\r\n\r\n{"app": '
"""A request that is being served: the server waits for the rest of it."""
AWAITED = HALF.replace(b"Content-Length", b"Expect: 100-continue\r\nContent-Length")
"""The same; the server says when it has begun to wait for the rest."""
LATE = b"HTTP/1.1 408 "


def test_an_installation_without_a_server_says_what_it_needs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delitem(sys.modules, "lango.server.http.connections")
    monkeypatch.setitem(sys.modules, "uvicorn.protocols.http.httptools_impl", None)
    with pytest.raises(ConfigError, match=r'pip install "lango-adk\[server\]"'):
        importlib.import_module("lango.server.http.connections")


def without_stalls(usual: Callable[[], float]) -> Callable[[], float]:
    """A clock that counts little of the time in which it was not read: the process was stalled."""
    shown = last = usual()

    def now() -> float:
        nonlocal shown, last
        read = usual()
        shown, last = shown + min(read - last, 0.2), read
        return shown

    return now


async def read_the_clock() -> None:
    """Let the loop read its clock often, also while it has nothing to do."""
    while True:  # noqa: ASYNC110 - it waits for nothing
        await asyncio.sleep(0.05)


@pytest_asyncio.fixture
async def hasty(sqlite_served: ServedApp, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Live]:
    """A server with a short timeout for requests, which no stall of this process uses up."""
    monkeypatch.setattr("lango.server.http.connections.PATIENCE", 2.0)
    loop = asyncio.get_running_loop()
    monkeypatch.setattr(loop, "time", without_stalls(loop.time))
    reading = asyncio.create_task(read_the_clock())
    async with live(sqlite_served) as opened:
        yield opened
    reading.cancel()


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


@asynccontextmanager
async def half_read(
    server: Live,
) -> AsyncGenerator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A connection whose request the server has begun to read."""
    async with connected(server) as (reader, writer):
        writer.write(AWAITED)
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        yield reader, writer


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


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"", 408),
        (HEALTH[:30], 408),
        (b"no HTTP at all\r\n\r\n", 400),
        (HEALTH[:-2] + b"X-More: " + b"0" * 70_000 + b"\r\n\r\n", 431),
        (HEALTH[:-2] + b"X-More: 0\r\n" * 6_000, 431),
    ],
    ids=["nothing", "half a head", "malformed", "too long", "without end"],
)
async def test_a_refused_head_has_an_id_and_a_line_in_the_access_log(
    sent: bytes, status: int, hasty: Live, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "lango.access")
    caplog.handler.addFilter(WithRequestId())
    head = (await said_to(hasty, sent)).decode()
    sent_id = re.search(r"\r\nX-Request-ID: (req_[0-9a-f]+)\r\n", head)
    assert sent_id, head
    [line] = [record for record in caplog.records if record.name == "lango.access"]
    assert vars(line)["request"] == f"[{sent_id[1]}] "
    assert re.fullmatch(rf"127\.0\.0\.1 - - {status} 0 B \d+ ms -", line.getMessage())


async def test_a_head_without_end_is_not_read(sqlite_served: ServedApp) -> None:
    async with live(sqlite_served) as server:
        heard = await said_to(server, HEALTH[:-2] + b"X-More: 0\r\n" * 6_000)
    assert heard.startswith(b"HTTP/1.1 431 ")


async def test_a_long_head_that_comes_at_once_is_refused_too(sqlite_served: ServedApp) -> None:
    async with live(sqlite_served) as server:
        for more in (b"X-More: " + b"0" * 70_000 + b"\r\n", b"X-More: 0\r\n" * 8_000):
            assert (await said_to(server, HEALTH[:-2] + more + b"\r\n")).startswith(
                b"HTTP/1.1 431 "
            )
        assert (await asked(server, "/healthz")).status_code == 200


async def test_what_is_sent_behind_an_answer_is_not_read(sqlite_served: ServedApp) -> None:
    piece, pieces = bytes(65_536), 10_000

    async def send(writer: asyncio.StreamWriter) -> None:
        for _ in range(pieces):
            writer.write(piece)
            await writer.drain()

    async with live(sqlite_served) as server, connected(server) as (_, writer):
        writer.write(POST + f"Content-Length: {len(piece) * pieces}\r\n\r\n".encode())
        with pytest.raises(ConnectionError):
            await asyncio.wait_for(send(writer), PATIENCE)


async def test_a_body_that_comes_behind_its_refusal_leaves_the_connection_open(
    sqlite_served: ServedApp,
) -> None:
    elsewhere = b"POST /v1/turns HTTP/1.1\r\nHost: lango.example\r\nContent-Length: 2\r\n\r\n"
    async with (
        live(sqlite_served) as server,
        connected(server) as (reader, writer),
        asyncio.timeout(PATIENCE),
    ):
        for _ in range(3):
            writer.write(elsewhere)
            assert (await reader.readuntil(b"}")).startswith(b"HTTP/1.1 421 ")
            writer.write(b"{}")
            await asyncio.sleep(0.05)
            writer.write(HEALTH)
            assert (await reader.readuntil(b"}")).startswith(b"HTTP/1.1 200 ")


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
    heard = await said_to(hasty, HALF)
    assert heard == b""  # the request was there, and what is not answered is cut off
    assert [each for each in caplog.records if each.levelno >= logging.WARNING] == []


async def test_an_answer_may_take_its_time(hasty: Live) -> None:
    served = hasty.served
    turn = await served.turn(await served.session(), 'call hold {"name": "go"}')
    async with hasty.client() as client, served.worker():
        path = f"/v1/turns/{turn}/events"
        async with client.stream("GET", path) as response:
            lines = response.aiter_lines()
            async for line in lines:
                if line == "event: tool.started":
                    break
            await asyncio.sleep(3.0)  # longer than the server's timeout for a request
            (served.process.workspace.folder / "go").touch()
            assert "event: completed" in [line async for line in lines]


async def asked(server: Live, path: str) -> httpx.Response:
    """The answer to a connection of its own."""
    async with client_of(None, server.url, "ann") as client:
        return await client.get(path)


@pytest_asyncio.fixture
async def narrow(
    sqlite_workspace: Workspace, tenant: str, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Live]:
    """A server with room for three connections."""
    monkeypatch.setattr("lango.server.process.BESIDE_STREAMS", 2)
    async with (
        served_app(sqlite_workspace, tenant, max_streams=1) as served,
        live(served) as server,
    ):
        yield server


async def test_a_connection_above_the_limit_gets_503_and_retry_after(narrow: Live) -> None:
    async with AsyncExitStack() as others:
        for _ in range(2):
            await others.enter_async_context(half_read(narrow))
        async with half_read(narrow):
            busy = await asked(narrow, "/v1/agents")
            assert (busy.status_code, busy.headers["content-type"]) == (503, MEDIA_TYPE)
            assert busy.json()["type"] == "urn:lango:error:server-busy"
            assert (busy.headers["retry-after"], busy.headers["connection"]) == ("1", "close")
            assert busy.headers["cache-control"] == "no-store"
            assert busy.headers["x-content-type-options"] == "nosniff"
            assert (await asked(narrow, "/healthz")).status_code == 200
        async with asyncio.timeout(PATIENCE):
            while (await asked(narrow, "/v1/agents")).status_code == 503:  # noqa: ASYNC110
                await asyncio.sleep(0.01)  # no event says when the server has seen its end
        assert (await asked(narrow, "/v1/agents")).status_code == 200


async def test_who_says_nothing_makes_room_for_who_does(narrow: Live) -> None:
    async with AsyncExitStack() as silent, asyncio.timeout(PATIENCE):
        readers = [(await silent.enter_async_context(connected(narrow)))[0] for _ in range(21)]
        assert (await asked(narrow, "/v1/agents")).status_code == 200
        with suppress(ConnectionError):
            assert await readers[0].read() == b""
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(readers[-1].read(), 0.2)


async def test_who_is_served_keeps_its_connection(narrow: Live) -> None:
    async with (
        asyncio.timeout(PATIENCE),
        half_read(narrow) as (reader, writer),
        AsyncExitStack() as silent,
    ):
        for _ in range(20):
            await silent.enter_async_context(connected(narrow))
        writer.write(b'"nothing"'.ljust(92, b" ")[:-1] + b"}")
        assert (await reader.readuntil(b"}")).startswith(b"HTTP/1.1 422 ")


class Connection:
    """One of many, as far as they are counted."""

    def __init__(self) -> None:
        self.transport = self
        self.is_open = True

    def abort(self) -> None:
        self.is_open = False


def test_no_more_than_the_reserve_is_taken_in_beside_what_is_served() -> None:
    everyone = OpenConnections(3)
    made = [Connection() for _ in range(3 + RESERVE + 1)]
    for each in cast("list[LimitedProtocol]", made):
        everyone.add(each)
        everyone.serve(each)
    assert everyone.are_too_many
    assert [each.is_open for each in made] == [True] * (3 + RESERVE) + [False]
    for each in cast("list[LimitedProtocol]", made[3:]):
        everyone.remove(each)
    assert not everyone.are_too_many


async def test_a_client_that_does_not_wait_for_its_answers_is_cut_off(
    sqlite_served: ServedApp,
) -> None:
    async with live(sqlite_served) as server, asyncio.timeout(PATIENCE):
        async with connected(server) as (reader, writer):
            writer.write(HEALTH * MAX_PIPELINED)
            for _ in range(MAX_PIPELINED):
                assert (await reader.readuntil(b"}")).startswith(b"HTTP/1.1 200 ")
        async with connected(server) as (reader, writer):
            writer.write(HEALTH * 2_000)
            heard = b""
            with suppress(ConnectionError):
                while piece := await reader.read(65_536):
                    heard += piece
            assert heard.count(b"HTTP/1.1 200 ") <= MAX_PIPELINED


async def test_no_more_is_read_while_requests_wait(
    sqlite_served: ServedApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    answered = LimitedProtocol.on_response_complete
    seen: list[tuple[int, bool]] = []

    def noted(connection: LimitedProtocol) -> None:
        answered(connection)
        seen.append((len(connection.pipeline), connection.flow.read_paused))

    monkeypatch.setattr(LimitedProtocol, "on_response_complete", noted)
    async with live(sqlite_served) as server, connected(server) as (reader, writer):
        async with asyncio.timeout(PATIENCE):
            writer.write(HEALTH * 4)
            for _ in range(4):
                await reader.readuntil(b"}")
    # Of the four, one is being answered, and the next begins as its answer ends.
    assert seen == [(2, True), (1, True), (0, False), (0, False)]


async def send_on(writer: asyncio.StreamWriter, piece: bytes, every: float) -> None:
    """Send a piece again and again, until the connection is lost."""
    async with asyncio.timeout(PATIENCE):
        while True:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(every)


async def test_a_body_that_drips_is_not_waited_for(hasty: Live) -> None:
    async with connected(hasty) as (reader, writer), asyncio.timeout(PATIENCE):
        # So long that it does not end while the client sends.
        writer.write(POST + b"Authorization: Bearer ann\r\nContent-Length: 1000000\r\n\r\n")
        with pytest.raises(ConnectionError):
            await send_on(writer, b" ", every=0.1)
        with pytest.raises(ConnectionError):
            await reader.read()


async def test_a_body_that_comes_steadily_is_read(
    hasty: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lango.server.http.connections.LEAST_RATE", 100)
    async with connected(hasty) as (reader, writer), asyncio.timeout(PATIENCE):
        writer.write(POST + b"Authorization: Bearer ann\r\nContent-Length: 1000\r\n\r\n")
        for _ in range(20):  # three seconds, where the server waits two for what says nothing
            writer.write(b" " * 50)
            await asyncio.sleep(0.15)
        assert (await reader.readuntil(b"}")).startswith(b"HTTP/1.1 400 ")


async def test_a_client_that_does_not_read_is_cut_off(
    sqlite_served: ServedApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lango.server.http.connections.UNREAD", 0.5)
    async with live(sqlite_served) as server, connected(server) as (_, writer):
        transport = cast("asyncio.Transport", writer.transport)
        transport.pause_reading()
        request = HEALTH.replace(b"/healthz", b"/openapi.json")
        with pytest.raises(ConnectionError):
            await send_on(writer, request, every=0.01)


@pytest.mark.parametrize(
    ("limits", "room", "raised"),
    [
        ((1_024, 4_096), 2_000, 2_300),
        ((1_024, 1_024), 724, None),
        ((5_000, 5_000), 2_000, None),
        ((-1, -1), 2_000, None),
        ((1_024, -1), 2_000, 2_300),
        ((100, 100), 1, None),
    ],
)
def test_connections_leave_room_for_other_files(
    limits: tuple[int, int], room: int, raised: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[int] = []

    def said_limit(_: int, new: tuple[int, int]) -> None:
        said.append(new[0])

    def found_limits(_: int) -> tuple[int, int]:
        return limits

    monkeypatch.setattr("resource.getrlimit", found_limits)
    monkeypatch.setattr("resource.setrlimit", said_limit)
    assert connection_limit(2_000) == room
    assert [each for each in said if each != limits[0]] == ([] if raised is None else [raised])


async def test_a_refused_connection_is_answered_in_the_form_of_its_path(
    adk_sqlite_served: ServedApp,
) -> None:
    full = OpenConnections(-1)
    limited = ConnectionLimit(adk_sqlite_served.app, full, adk_sqlite_served.app)
    async with client_of(httpx.ASGITransport(limited), "http://localhost", "ann") as client:
        forms = [
            (await client.get(path)).json().keys()
            for path in ("/v1/agents", "/openai/v1/models", "/adk/list-apps")
        ]
    assert full.are_too_many
    assert "type" in forms[0]
    assert forms[1:] == [{"error"}, {"detail"}]
