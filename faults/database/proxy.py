"""A TCP proxy for PostgreSQL that can refuse, freeze, redirect and lose connections."""

from __future__ import annotations

import asyncio
import socket
import time
from asyncio import StreamReader, StreamWriter
from collections.abc import Callable
from contextlib import suppress
from typing import Final, NamedTuple, Self

from sqlalchemy import make_url

_HOST: Final = "127.0.0.1"
_ACCEPTING: Final = 0.1
"""Seconds in which a connection accepted at the end gets its task."""
_READY_AND_IDLE: Final = b"Z\0\0\0\5I"
"""The server is ready for a statement, and no transaction is open."""


class ReplyFault(NamedTuple):
    """A fault of a reply: it arrives after some seconds, or the connection is cut then."""

    seconds: float
    arrives: bool


NONE: Final = ReplyFault(0.0, arrives=True)
Choose = Callable[[str], ReplyFault | None]
"""Returns the fault, if any, of the reply to a commit: a "commit" or an "autocommit"."""


class Proxy:
    """Forwards everything to a server until a fault is set.

    `choose` is asked for each commit. A connection over which nothing was sent for
    `forget_idle_after` seconds is lost as a NAT loses it: later bytes vanish, and no reset comes.
    """

    def __init__(
        self, url: str, choose: Choose | None = None, *, forget_idle_after: float | None = None
    ) -> None:
        self._url = make_url(url)
        self.target = self._url.host or _HOST, self._url.port or 5432
        self.choose = choose
        self.forget_idle_after = forget_idle_after
        self.accepted = self.forgotten = 0  # connections
        self._links: set[_Link] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._flows = asyncio.Event()
        self._flows.set()

    async def __aenter__(self) -> Self:
        # Bound and never listening: while the proxy refuses, no other process can get the port.
        self._reserved = _reusable_socket()
        self._reserved.bind((_HOST, 0))
        self.port: int = self._reserved.getsockname()[1]
        self._listening: asyncio.Server | None = None
        await self.accept()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.refuse()
        self._reserved.close()
        await asyncio.sleep(_ACCEPTING)
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.sleep(0)  # in which their transports are closed

    @property
    def url(self) -> str:
        """The database, through this proxy."""
        through = self._url.set(host=_HOST, port=self.port)
        return through.render_as_string(hide_password=False)

    def redirect(self, url: str) -> None:
        """Connect new clients to another server; open connections keep theirs."""
        parsed = make_url(url)
        self.target = parsed.host or _HOST, parsed.port or 5432

    def cut(self) -> None:
        """Reset every connection."""
        for link in list(self._links):
            link.abort()

    def refuse(self) -> None:
        """Reset every connection, and let the kernel refuse new ones."""
        if self._listening is not None:
            self._listening.close()
            self._listening = None
        self.cut()

    async def accept(self) -> None:
        """Accept connections."""
        if self._listening is None:
            self._listening = await asyncio.start_server(
                self._begin, _HOST, self.port, reuse_address=True
            )

    def freeze(self) -> None:
        """Hold back every byte, both ways; connections stay open, new ones get no answer."""
        self._flows.clear()

    def thaw(self) -> None:
        """Forward the bytes held back, and all later ones."""
        self._flows.set()

    def forget(self) -> int:
        """Drop all connections silently: their bytes are lost from now on; return their number."""
        links = [link for link in self._links if not link.is_lost]
        for link in links:
            self._lose(link)
        return len(links)

    def _lose(self, link: _Link) -> None:
        """Drop a connection without a signal to the client; reset it towards the server."""
        link.is_lost = True
        link.up.transport.abort()
        self.forgotten += 1

    def _begin(self, client: StreamReader, out: StreamWriter) -> None:
        """Serve a client in its own task, whose end always resets the connection."""
        task = asyncio.create_task(self._serve(client, out))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda _: out.transport.abort())

    async def _serve(self, client: StreamReader, out: StreamWriter) -> None:
        with suppress(OSError):
            await self._connect(client, out)

    async def _connect(self, client: StreamReader, out: StreamWriter) -> None:
        await self._flows.wait()
        server, up = await asyncio.open_connection(*self.target)
        self.accepted += 1
        link = _Link(up, out)
        self._links.add(link)
        ways = [
            asyncio.create_task(self._requests(link, client, up)),
            asyncio.create_task(self._replies(link, server, out)),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._links.discard(link)
            link.abort()
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)

    async def _requests(self, link: _Link, client: StreamReader, up: StreamWriter) -> None:
        while data := await client.read(65_536):
            if self.choose is not None and (commit := link.commit_in(data)):
                fault = self.choose(commit)
                if fault is not None:
                    link.faults.append(fault)
            await self._pass_on(link, data, up)

    async def _replies(self, link: _Link, server: StreamReader, out: StreamWriter) -> None:
        while data := await server.read(65_536):
            link.is_idle = data.endswith(_READY_AND_IDLE)
            fault = link.faults.pop() if link.faults else NONE
            await asyncio.sleep(fault.seconds)
            if not fault.arrives:
                return
            await self._pass_on(link, data, out)
        if link.is_lost:  # the client is not notified of the end
            await asyncio.Event().wait()

    async def _pass_on(self, link: _Link, data: bytes, sink: StreamWriter) -> None:
        await self._flows.wait()
        idle, limit = time.monotonic() - link.used, self.forget_idle_after
        if limit is not None and idle > limit and not link.is_lost:
            self._lose(link)
        if not link.is_lost:
            link.used = time.monotonic()
            sink.write(data)
            await sink.drain()


class _Link:
    """One connection through the proxy."""

    def __init__(self, up: StreamWriter, out: StreamWriter) -> None:
        self.up, self._out = up, out
        self.is_lost = False
        self.is_idle = False  # no transaction is open
        self.used = time.monotonic()
        self.faults: list[ReplyFault] = []

    def commit_in(self, data: bytes) -> str | None:
        """The kind of commit in a request, if any: outside a transaction each statement commits."""
        if data.startswith(b"Q") and b"commit" in data.lower():
            return "commit"
        return "autocommit" if self.is_idle and data.startswith(b"B") else None

    def abort(self) -> None:
        """Reset the connection, both ways."""
        for stream in (self.up, self._out):
            stream.transport.abort()


def _reusable_socket() -> socket.socket:
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    return made
