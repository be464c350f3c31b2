"""A server process from its start to its end."""

import asyncio
import signal
import socket
from itertools import pairwise

import httpx
import pytest
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from lango.errors import ConfigError
from lango.providers.policy.loop_throttle import PER_PASS
from lango.server.backend import services_of
from lango.server.listening import listen
from lango.server.process import StopSignal, http_server, serve
from tests.server.served_apps import PATIENCE, ServedApp, live

STREAM = {"Accept": "text/event-stream"}


async def held(served: ServedApp, name: str) -> str:
    """A turn that runs until a file of that name is there."""
    turn = await served.turn(await served.session(), f'call hold {{"name": "{name}"}}')
    await served.process.workspace.effects.wait(lambda effects: f"held {name}" in effects)
    return turn


async def stopping(served: ServedApp) -> None:
    async with asyncio.timeout(PATIENCE):
        while not services_of(served.app).health.is_stopping:  # noqa: ASYNC110 - no event to await
            await asyncio.sleep(0.005)


async def test_turns_end_before_the_server_does(served: ServedApp) -> None:
    async with live(served, served.worker(), drain=PATIENCE) as server:
        turn = await held(served, "go")
        server.stop.ask()
        await stopping(served)
        assert not server.serving.done()
        (served.process.workspace.folder / "go").touch()
        await server.serving
    assert (await served.turns().get(turn)).state == "completed"


async def test_a_turn_that_does_not_end_is_left_to_others(served: ServedApp) -> None:
    listening, stop = listen("127.0.0.1", 0), StopSignal()
    serving = asyncio.create_task(
        serve(served.app, listening, worker=served.worker(), stop=stop, drain=0.0)
    )
    turn = await held(served, "go")
    stop.ask()
    await serving
    assert (await served.turns().get(turn)).state == "running"
    async with served.worker():
        (served.process.workspace.folder / "go").touch()
        ended = await served.turns().wait(turn)
    assert (ended.state, ended.attempts) == ("completed", 2)


async def test_a_second_wish_to_stop_does_not_wait(served: ServedApp) -> None:
    listening, stop = listen("127.0.0.1", 0), StopSignal()
    serving = asyncio.create_task(
        serve(served.app, listening, worker=served.worker(), stop=stop, drain=3600.0)
    )
    turn = await held(served, "never")
    stop.ask()
    await stopping(served)
    stop.ask()
    await serving
    assert (await served.turns().get(turn)).state == "running"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda one: one.name)
async def test_a_signal_stops_it(number: signal.Signals, sqlite_served: ServedApp) -> None:
    ready = asyncio.Event()
    stopped: list[bool] = []
    listening = listen("127.0.0.1", 0)
    serving = asyncio.create_task(
        serve(
            sqlite_served.app, listening, on_ready=ready.set, on_stop=lambda: stopped.append(True)
        )
    )
    await ready.wait()
    signal.raise_signal(number)
    await serving
    assert stopped == [True]
    assert listening.fileno() == -1


async def test_a_stopped_server_accepts_no_more(sqlite_served: ServedApp) -> None:
    async with live(sqlite_served) as server, server.client() as client:
        assert (await client.get("/healthz")).status_code == 200
        server.stop.ask()
        await server.serving
        port = int(server.url.rpartition(":")[2])
        with pytest.raises(OSError, match="refused"):
            socket.create_connection(("127.0.0.1", port)).close()


async def test_what_begins_the_server_and_fails_ends_it(
    sqlite_served: ServedApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail() -> None:
        raise ConfigError("no model")

    monkeypatch.setattr("lango.server.process.warm_up", fail)
    listening = listen("127.0.0.1", 0)
    with pytest.raises(ConfigError, match="no model"):
        await serve(sqlite_served.app, listening, stop=StopSignal())
    assert listening.fileno() == -1


async def test_a_crowd_comes_in_little_by_little(sqlite_served: ServedApp) -> None:
    http, listening = http_server(sqlite_served.app), listen("127.0.0.1", 0)
    serving = asyncio.create_task(http.serve(sockets=[listening]))
    async with asyncio.timeout(PATIENCE):
        while not http.started:  # noqa: ASYNC110 - no event to await
            await asyncio.sleep(0.005)
        address = listening.getsockname()
        # Nothing is accepted before the loop runs again: all of them wait in the queue.
        crowd = [socket.create_connection(address, PATIENCE) for _ in range(4 * PER_PASS)]
        inside = [0]
        while inside[-1] < len(crowd):
            await asyncio.sleep(0)
            inside.append(len(http.server_state.connections))
    for client in crowd:
        client.close()
    http.should_exit = True
    await serving
    came = [now - before for before, now in pairwise(inside)]
    assert max(came) <= PER_PASS + 1  # newer Pythons take one more


@pytest.mark.parametrize(
    ("proxies", "address"), [((), "127.0.0.1"), (("127.0.0.0/8",), "192.0.2.7")]
)
async def test_only_a_trusted_proxy_says_who_its_client_is(
    proxies: tuple[str, ...], address: str
) -> None:
    async def who(scope: Scope, _: Receive, send: Send) -> None:
        found = Response(scope["client"][0])
        await found(scope, _, send)

    http, listening = http_server(who, proxies=proxies), listen("127.0.0.1", 0)
    serving = asyncio.create_task(http.serve(sockets=[listening]))
    async with httpx.AsyncClient(timeout=PATIENCE) as client:
        url = f"http://127.0.0.1:{listening.getsockname()[1]}/"
        answer = await client.get(url, headers={"X-Forwarded-For": "192.0.2.7"})
    http.should_exit = True
    await serving
    assert answer.text == address
