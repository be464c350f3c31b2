"""A server process: HTTP and a worker on one event loop, from start to drain."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Final, cast

import uvicorn
from fastapi import FastAPI
from starlette.types import ASGIApp

from lango.adk.apps.preload import warm_up
from lango.errors import DatabaseHeldError
from lango.providers.policy.loop_throttle import PER_PASS
from lango.server.backend import services_of
from lango.server.health import Health
from lango.server.http.access_log import AccessLog
from lango.server.http.connections import (
    BESIDE_STREAMS,
    KEEP_ALIVE,
    ConnectionLimit,
    LimitedProtocol,
    OpenConnections,
    connection_limit,
)
from lango.server.http.request_throttle import RequestThrottle
from lango.server.http.traces import RequestTraces
from lango.turns.worker import DRAIN, TurnWorker

logger = logging.getLogger(__name__)

HTTP_DRAIN: Final = 10
"""Seconds that requests other than streams have to end."""
_WAITING_CONNECTIONS: Final = 2_048
_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


class StopSignal:
    """A request to stop: the first drains, the second stops immediately."""

    def __init__(self) -> None:
        self.requested = asyncio.Event()
        self.immediate = asyncio.Event()

    def ask(self) -> None:
        """Ask to drain; the second time, to stop immediately."""
        (self.immediate if self.requested.is_set() else self.requested).set()


class _Uvicorn(uvicorn.Server):
    """A uvicorn server without its signal handlers: they would raise the signal again."""

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen with a long queue: uvicorn's `backlog` also limits the connections per accept."""
        await super().startup(sockets)
        for listener in sockets or ():
            listener.listen(_WAITING_CONNECTIONS)


def http_server(
    app: ASGIApp, most: int = BESIDE_STREAMS, proxies: Sequence[str] = ()
) -> uvicorn.Server:
    """A server for an application; it does not open or close the application's backend.

    Above `most` connections it answers that it is busy. It trusts the forwarded client addresses
    of `proxies`.
    """
    connections = OpenConnections(connection_limit(most))
    protocol = cast("type[LimitedProtocol]", partial(LimitedProtocol, connections=connections))
    return _Uvicorn(
        uvicorn.Config(
            RequestTraces(AccessLog(ConnectionLimit(RequestThrottle(app), connections, app))),
            http=protocol,
            lifespan="off",
            ws="none",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=bool(proxies),
            forwarded_allow_ips=list(proxies),
            backlog=PER_PASS,
            timeout_keep_alive=KEEP_ALIVE,
            timeout_graceful_shutdown=HTTP_DRAIN,
        )
    )


def plain_server(app: ASGIApp) -> uvicorn.Server:
    """A server for an operator's own port: without limits, and not in the access log."""
    return _Uvicorn(
        uvicorn.Config(
            app,
            lifespan="off",
            ws="none",
            log_config=None,
            access_log=False,
            server_header=False,
        )
    )


async def serve(
    app: FastAPI,
    listening: socket.socket,
    *,
    worker: TurnWorker | None = None,
    drain: float = DRAIN,
    stop: StopSignal | None = None,
    on_ready: Callable[[], None] = lambda: None,
    on_stop: Callable[[], None] = lambda: None,
) -> None:
    """Serve until SIGTERM or SIGINT, or until `stop` is asked; then drain.

    The server refuses new requests and ends its streams, whose clients can reconnect elsewhere.
    The worker's turns get `drain` seconds; other workers resume those that still run.
    """
    options = services_of(app).options
    http = http_server(app, options.max_streams + BESIDE_STREAMS, options.trusted_proxies)
    stop_signal = stop or StopSignal()
    with handle_signals(stop_signal) if stop is None else nullcontext():
        serving = asyncio.create_task(http.serve(sockets=[listening]))
        starting: asyncio.Task[None] | None = None
        watching = asyncio.create_task(services_of(app).streams.watch())
        try:
            starting = await _begin(app, worker, serving)
            on_ready()
            await either(serving, stop_signal.requested)
            on_stop()
        finally:
            watching.cancel()
            if starting is not None:
                starting.cancel()
                await asyncio.wait([starting])
            await _end(app, http, serving, worker, stop_signal, drain)


async def _begin(
    app: FastAPI, worker: TurnWorker | None, serving: asyncio.Task[None]
) -> asyncio.Task[None] | None:
    """Warm up and start the worker, while probes are already answered.

    If the database is held, the server answers; returns the task that waits for the release.
    """
    health = services_of(app).health
    health.has_worker = worker is not None
    await warm_up()
    health.is_warm = True
    if worker is None or serving.done():
        return None
    try:
        await worker.start()
    except DatabaseHeldError:
        return asyncio.create_task(_start_when_released(health, worker))
    health.worker = worker
    return None


async def _start_when_released(health: Health, worker: TurnWorker) -> None:
    await worker.start_when_released()
    health.worker = worker


async def _end(
    app: FastAPI,
    http: uvicorn.Server,
    serving: asyncio.Task[None],
    worker: TurnWorker | None,
    stop_signal: StopSignal,
    drain: float,
) -> None:
    services = services_of(app)
    services.health.is_stopping = True
    services.streams.drain()
    http.should_exit = True
    if worker is not None and services.health.worker is not None:
        stopping = asyncio.create_task(worker.stop(drain))
        await either(stopping, stop_signal.immediate)
        if not stopping.done():
            stopping.cancel()
            await asyncio.wait([stopping])
            await worker.stop(0)
    await either(serving, stop_signal.immediate)
    http.force_exit = stop_signal.immediate.is_set()
    await serving


async def either(task: asyncio.Task[None], event: asyncio.Event) -> None:
    """Wait until the task is done or the event is set."""
    waiting = asyncio.create_task(event.wait())
    await asyncio.wait({task, waiting}, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()


@contextmanager
def handle_signals(stop_signal: StopSignal) -> Generator[None]:
    """Ask `stop_signal` to stop on SIGTERM and SIGINT, within the block."""
    loop = asyncio.get_running_loop()
    for signal_number in _SIGNALS:
        loop.add_signal_handler(signal_number, stop_signal.ask)
    try:
        yield
    finally:
        for signal_number in _SIGNALS:
            loop.remove_signal_handler(signal_number)
