"""A TCP proxy before PostgreSQL that can refuse, freeze, redirect and silently lose connections."""

from __future__ import annotations

import asyncio
from asyncio import StreamReader, StreamWriter
from typing import Self

from sqlalchemy import make_url


class OutageProxy:
    """Passes everything on to a server until told otherwise."""

    def __init__(self, url: str) -> None:
        self._url = make_url(url)
        self.target = self._url.host or "127.0.0.1", self._url.port or 5432
        self._links: set[_Link] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._refuses = False
        self._flows = asyncio.Event()
        self._flows.set()

    async def __aenter__(self) -> Self:
        self._listening = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self._port: int = self._listening.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._listening.close()
        self.cut()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def url(self) -> str:
        """The database, through this proxy."""
        through = self._url.set(host="127.0.0.1", port=self._port)
        return through.render_as_string(hide_password=False)

    def cut(self) -> None:
        """Reset every connection."""
        for link in list(self._links):
            link.abort()

    def refuse(self) -> None:
        """Reset every connection, and each new one."""
        self._refuses = True
        self.cut()

    def accept(self) -> None:
        """Take connections again."""
        self._refuses = False

    def freeze(self) -> None:
        """Hold back every byte, both ways; connections stay open."""
        self._flows.clear()

    def thaw(self) -> None:
        """Pass on what was held back, and what follows."""
        self._flows.set()

    def forget(self) -> int:
        """Lose the connections there are without a word: no byte of theirs arrives any more."""
        links = list(self._links)
        for link in links:
            link.is_lost = True
        return len(links)

    async def _accept(self, client: StreamReader, out: StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._link(client, out)
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            out.transport.abort()
            self._tasks.discard(task)

    async def _link(self, client: StreamReader, out: StreamWriter) -> None:
        await self._flows.wait()
        if self._refuses:
            return
        server, up = await asyncio.open_connection(*self.target)
        link = _Link(up, out)
        self._links.add(link)
        ways = [
            asyncio.create_task(self._pass_on(link, client, up)),
            asyncio.create_task(self._pass_on(link, server, out)),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._links.discard(link)
            link.abort()
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)

    async def _pass_on(self, link: _Link, source: StreamReader, sink: StreamWriter) -> None:
        while data := await source.read(65_536):
            await self._flows.wait()
            if not link.is_lost:
                sink.write(data)
                await sink.drain()
        if link.is_lost:  # its end is not told either
            await asyncio.Event().wait()


class _Link:
    """One connection through the proxy."""

    def __init__(self, up: StreamWriter, out: StreamWriter) -> None:
        self._streams = up, out
        self.is_lost = False

    def abort(self) -> None:
        for stream in self._streams:
            stream.transport.abort()
