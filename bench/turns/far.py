"""A database that is far away: a proxy in a process of its own, which delays every byte."""

from __future__ import annotations

import asyncio
import multiprocessing
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from bench.pg import with_port

if TYPE_CHECKING:
    from asyncio import StreamReader, StreamWriter
    from collections.abc import AsyncGenerator
    from multiprocessing.connection import Connection

_CONTEXT: Final = multiprocessing.get_context("forkserver")
_PATIENCE: Final = 30.0
_HOST: Final = "127.0.0.1"


@asynccontextmanager
async def far_away(url: str, seconds: float) -> AsyncGenerator[str]:
    """The URL of the same database, with so many seconds on the way to it, and back."""
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
    asyncio.run(_Delay(target, seconds).serve(pipe))


class _Delay:
    def __init__(self, target: tuple[str, int], seconds: float) -> None:
        self._target = target
        self._seconds = seconds

    async def serve(self, pipe: Connection) -> None:
        """Forward until killed; the pipe is sent the port."""
        server = await asyncio.start_server(self._connect, _HOST, 0)
        pipe.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    async def _connect(self, client: StreamReader, out: StreamWriter) -> None:
        server, up = await asyncio.open_connection(*self._target)
        await asyncio.gather(self._pass_on(client, up), self._pass_on(server, out))

    async def _pass_on(self, source: StreamReader, sink: StreamWriter) -> None:
        """Write each chunk when it is due: the next one is read meanwhile."""
        loop = asyncio.get_running_loop()
        while data := await source.read(1 << 16):
            loop.call_later(self._seconds, sink.write, data)
        loop.call_later(self._seconds, sink.close)
