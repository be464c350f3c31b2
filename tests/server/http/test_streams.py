"""Streams on a real socket: beats, clients that go away, room, and the drain."""

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import httpx
import pytest
from fastapi import Request

from faults.server.sse import Frame, frames
from faults.turns.workspace import Workspace
from lango.errors import (
    KeyLimitError,
    ServerBusyError,
    StoreUnavailableError,
    UnauthorizedError,
)
from lango.server.auth.callers import Caller
from lango.server.backend import services_of
from lango.server.http.streams import EventStream, StreamLimits, Streams
from tests.server.served_apps import CHAT, PATIENCE, Live, ServedApp, live, served_app

STREAM = {"Accept": "text/event-stream"}
ANN = Caller("tenant", "ann", CHAT, "key_ann")


async def always() -> None:
    """The caller's credential stays good."""


@asynccontextmanager
async def holding(server: Live, name: str) -> AsyncGenerator[tuple[str, httpx.Response]]:
    """A turn that waits for a file of that name, and the stream of who handed it in."""
    served = server.served
    session = await served.session()
    body = {"message": f'call hold {{"name": "{name}"}}'}
    path = f"/v1/sessions/{session}/turns"
    async with (
        server.client() as client,
        client.stream("POST", path, json=body, headers=STREAM) as response,
    ):
        assert response.status_code == 200
        await served.process.workspace.effects.wait(lambda said: f"held {name}" in said)
        yield response.headers["location"].rpartition("/")[2], response


def let_go(served: ServedApp, name: str) -> None:
    (served.process.workspace.folder / name).touch()


async def slots(served: ServedApp, count: int) -> None:
    """Wait until this number of streams is open."""
    async with asyncio.timeout(PATIENCE):
        while len(services_of(served.app).streams.slots) != count:  # noqa: ASYNC110 - no event
            await asyncio.sleep(0.005)


async def test_events_come_as_they_happen(served: ServedApp) -> None:
    async with live(served, served.worker()) as server, holding(server, "go") as (_, response):
        told: list[Frame] = []
        async for frame in frames(response):
            told.append(frame)
            if frame.event == "tool.started":  # the tool is not over
                let_go(served, "go")
        types = [frame.event for frame in told]
    assert types[:2] == ["accepted", "started"]
    assert (types[-1], types.count("tool.finished")) == ("completed", 1)


async def test_a_silent_stream_beats(sqlite_workspace: Workspace, tenant: str) -> None:
    async with (
        served_app(sqlite_workspace, tenant, heartbeat=0.05) as served,
        live(served, served.worker()) as server,
        holding(server, "go") as (_, response),
    ):
        beats = 0
        async for line in response.aiter_lines():
            beats += line == ":"
            if beats == 3:
                break
        let_go(served, "go")
    assert beats == 3


async def test_a_client_that_goes_away_leaves_its_turn_running(served: ServedApp) -> None:
    async with live(served, served.worker()) as server:
        async with holding(server, "go") as (turn, _):
            await slots(served, 1)
        await slots(served, 0)
        assert (await served.turns().get(turn)).state == "running"
        let_go(served, "go")
        ended = await served.turns().wait(turn)
        assert (ended.state, ended.attempts) == ("completed", 1)


async def test_there_is_room_for_so_many(sqlite_workspace: Workspace, tenant: str) -> None:
    async with (
        served_app(
            sqlite_workspace,
            tenant,
            max_streams=2,
            max_streams_per_tenant=2,
            max_streams_per_key=2,
        ) as served,
        live(served, served.worker()) as server,
        server.client() as client,
    ):
        async with holding(server, "a") as (turn, _), holding(server, "b"):
            await slots(served, 2)
            await _check_full(served, client, turn)
            let_go(served, "a")
            let_go(served, "b")
        await slots(served, 0)
        assert (await client.get(f"/v1/turns/{turn}/events")).status_code == 200


async def _check_full(served: ServedApp, client: httpx.AsyncClient, turn: str) -> None:
    session = await served.session()
    path = f"/v1/sessions/{session}/turns"
    for answer in (
        await client.get(f"/v1/turns/{turn}/events"),
        await client.post(path, json={"message": "x"}, headers=STREAM),
    ):
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
        assert answer.json()["type"] == "urn:lango:error:server-busy"
    assert (await client.get(path)).json()["turns"] == []  # what was refused was not done


LIMITS = [
    (StreamLimits(100), 50, 80),
    (StreamLimits(100, per_tenant=100, per_key=100), 100, 100),
    (StreamLimits(100, per_tenant=12, per_key=7), 7, 12),
    (StreamLimits(1), 1, 1),
]


@pytest.mark.parametrize(("limits", "of_key", "of_tenant"), LIMITS)
def test_neither_a_key_nor_a_tenant_has_all_streams(
    limits: StreamLimits, of_key: int, of_tenant: int
) -> None:
    streams = Streams(limits)

    def opened(tenant: str, key_id: str) -> int:
        """How many that caller can open."""
        for count in range(101):
            try:
                with streams.opening(Caller(tenant, "u", CHAT, key_id), always):
                    pass
            except (KeyLimitError, ServerBusyError):
                return count
        raise AssertionError("no end")

    assert opened("one", "a") == of_key
    assert opened("one", "b") + of_key == of_tenant
    assert opened("two", "c") == min(of_key, limits.most - of_tenant)


def test_users_with_tokens_have_each_their_own_streams() -> None:
    streams = Streams(StreamLimits(10, per_key=1))
    for user in ("ann", "bob"):
        with streams.opening(Caller("tenant", user, CHAT, ""), always):
            pass
    bob = Caller("tenant", "bob", CHAT, "")
    with pytest.raises(KeyLimitError), streams.opening(bob, always):
        pass


async def test_a_key_has_a_limit_of_streams(sqlite_workspace: Workspace, tenant: str) -> None:
    async with (
        served_app(sqlite_workspace, tenant, max_streams=4, max_streams_per_key=1) as served,
        live(served, served.worker()) as server,
        server.client() as ann,
        server.client("bob") as bob,
        holding(server, "go") as (turn, _),
    ):
        refused = await ann.get(f"/v1/turns/{turn}/events")
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
        assert "may have 1 streams" in refused.json()["detail"]
        body = {"app": served.agent}
        session = (await bob.post("/v1/sessions", json=body)).json()["id"]
        answer = await bob.post(
            f"/v1/sessions/{session}/turns", json={"message": "x"}, headers=STREAM
        )
        assert answer.status_code == 200
        let_go(served, "go")


async def test_a_refused_turn_gives_its_slot_back(sqlite_served: ServedApp) -> None:
    session = await sqlite_served.session()
    await sqlite_served.turn(session, "one")
    async with sqlite_served.client() as client:
        body = {"message": "two", "busy": "reject"}
        refused = await client.post(f"/v1/sessions/{session}/turns", json=body, headers=STREAM)
    assert refused.status_code == 409
    await slots(sqlite_served, 0)


async def test_a_caller_that_loses_its_credential_loses_its_stream(
    sqlite_served: ServedApp, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("lango.server.http.streams.RECHECKED", 0.05)
    fates: list[Exception] = [StoreUnavailableError(), RuntimeError("broken"), KeyLimitError()]

    async def recheck(request: Request) -> None:
        assert request.headers["authorization"] == "Bearer ann"
        raise fates.pop(0) if fates else UnauthorizedError

    sqlite_served.app.state.identity.recheck = recheck
    async with (
        live(sqlite_served, sqlite_served.worker()) as server,
        holding(server, "go") as (turn, response),
    ):
        async with asyncio.timeout(PATIENCE):
            told = [frame.event async for frame in frames(response)]
        assert (fates, "completed" in told) == ([], False)
        let_go(sqlite_served, "go")
        assert (await sqlite_served.turns().wait(turn)).state == "completed"
    [failure] = [each for each in caplog.records if each.levelno == logging.ERROR]
    assert "broken" in (failure.exc_text or "")


async def test_a_deleted_turn_ends_its_stream(served: ServedApp) -> None:
    async with (
        live(served, served.worker()) as server,
        server.client() as client,
        holding(server, "never") as (turn, response),
    ):
        session = (await client.get(f"/v1/turns/{turn}")).json()["session"]
        assert (await client.delete(f"/v1/sessions/{session}")).status_code == 204
        told = [frame.event async for frame in frames(response)]
    assert told[-1] != "completed"


async def test_a_server_that_stops_ends_its_streams_and_others_go_on(
    served: ServedApp, workspace: Workspace, tenant: str
) -> None:
    async with (
        served_app(workspace, tenant) as elsewhere,
        elsewhere.worker(),
        live(elsewhere) as other,
    ):
        async with live(served) as server, holding(server, "go") as (turn, response):
            seen: list[Frame] = []
            async for frame in frames(response):  # ended, and not by the turn
                seen.append(frame)
                if frame.event == "tool.started":
                    server.stop.ask()
            await server.serving
        assert "completed" not in [frame.event for frame in seen]
        let_go(served, "go")
        async with other.client() as client:
            header = {"Last-Event-ID": str(seen[-1].id)}
            async with client.stream("GET", f"/v1/turns/{turn}/events", headers=header) as rest:
                seen += [frame async for frame in frames(rest)]
    shown = [frame.id for frame in seen]
    assert shown == sorted(set(shown))
    assert (seen[0].event, seen[-1].event) == ("accepted", "completed")


async def test_a_draining_server_begins_no_stream(sqlite_served: ServedApp) -> None:
    turn = await sqlite_served.turn(await sqlite_served.session(), "x")
    services_of(sqlite_served.app).streams.drain()
    async with sqlite_served.client() as client:
        assert (await client.get(f"/v1/turns/{turn}/events")).status_code == 503
        assert (await client.get(f"/v1/turns/{turn}")).status_code == 200


async def _sent(streams: Streams, source: AsyncGenerator[bytes]) -> bytes:
    """What a client gets that reads slowly."""
    sent = bytearray()

    async def send(message: dict[str, object]) -> None:
        await asyncio.sleep(0)
        sent.extend(message.get("body", b""))  # pyright: ignore[reportArgumentType]

    with streams.opening(ANN, always) as slot:
        stream = EventStream(slot, source)
    await stream({"type": "http", "asgi": {"spec_version": "2.4"}}, None, send)  # pyright: ignore[reportArgumentType]
    return bytes(sent)


async def test_a_long_log_is_sent_whole() -> None:
    async def source() -> AsyncGenerator[bytes]:
        for number in range(10_000):
            yield b"%d," % number

    streams = Streams(StreamLimits(1))
    assert await _sent(streams, source()) == b"".join(b"%d," % n for n in range(10_000))
    assert streams.slots == set()


async def test_a_log_that_fails_ends_the_stream(caplog: pytest.LogCaptureFixture) -> None:
    async def source() -> AsyncGenerator[bytes]:
        yield b"one"
        raise OSError("gone")

    assert await _sent(Streams(StreamLimits(1)), source()) == b"one"
    assert [record.levelno for record in caplog.records] == [logging.ERROR]


async def test_a_stream_that_was_ended_before_it_began_sends_nothing() -> None:
    async def source() -> AsyncGenerator[bytes]:
        await asyncio.Event().wait()
        yield b"never"

    streams = Streams(StreamLimits(1))
    with streams.opening(ANN, always) as slot:
        stream = EventStream(slot, source())
    streams.drain()

    async def send(message: dict[str, object]) -> None:
        assert not message.get("body")

    await stream({"type": "http", "asgi": {"spec_version": "2.4"}}, None, send)  # pyright: ignore[reportArgumentType]
    assert streams.slots == set()
