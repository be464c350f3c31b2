"""A database that is far away: a proxy in a process of its own, which delays every byte.

By threads: the timers of an event loop are rounded up to whole milliseconds.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import socket
import time
from contextlib import asynccontextmanager
from queue import SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from bench.pg import with_port

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from multiprocessing.connection import Connection

_CONTEXT: Final = multiprocessing.get_context("forkserver")
_PATIENCE: Final = 30.0
_HOST: Final = "127.0.0.1"


@asynccontextmanager
async def far_away(url: str, seconds: float) -> AsyncGenerator[str]:
    """The URL of the same database, with a delay of `seconds` in each direction."""
    ours, theirs = _CONTEXT.Pipe()
    server = urlsplit(url)
    target = server.hostname or _HOST, server.port or 5432
    process = _CONTEXT.Process(target=_serve, args=(target, seconds, theirs), daemon=True)
    process.start()
    try:
        if not await asyncio.to_thread(ours.poll, _PATIENCE):
            raise TimeoutError("The proxy did not start.")
        yield with_port(url, ours.recv())
    finally:
        process.kill()
        process.join(_PATIENCE)
        ours.close()


def _serve(target: tuple[str, int], seconds: float, pipe: Connection) -> None:
    """Forward until killed; send the port over the pipe."""
    listening = socket.create_server((_HOST, 0))
    pipe.send(listening.getsockname()[1])
    while True:
        client, _ = listening.accept()
        server = socket.create_connection(target)
        for source, sink in ((client, server), (server, client)):
            source.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            _Way(source, sink, seconds).start()


class _Way:
    """One direction of a connection: each chunk is sent on when it is due."""

    def __init__(self, source: socket.socket, sink: socket.socket, seconds: float) -> None:
        self._source, self._sink, self._seconds = source, sink, seconds
        self._chunks: SimpleQueue[tuple[float, bytes]] = SimpleQueue()

    def start(self) -> None:
        """Start to forward, until the source ends."""
        for job in (self._receive, self._send):
            Thread(target=job, daemon=True).start()

    def _receive(self) -> None:
        data = b"-"
        while data:
            try:
                data = self._source.recv(1 << 16)
            except OSError:
                data = b""
            self._chunks.put((time.monotonic() + self._seconds, data))

    def _send(self) -> None:
        while True:
            due, data = self._chunks.get()
            time.sleep(max(due - time.monotonic(), 0.0))
            try:
                self._sink.sendall(data)
                if not data:
                    self._sink.shutdown(socket.SHUT_WR)
                    return
            except OSError:
                return
