"""Counts network traffic by a proxy that parses PostgreSQL's frontend messages."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

_REFUSED_REQUESTS: Final = (80877103, 80877104)  # TLS, GSSAPI: an encrypted stream has no counts
_STARTUP: Final = "startup"
_REFUSED: Final = "refused"


@dataclass(slots=True)
class Traffic:
    """What a client sent and received since the last reset."""

    round_trips: int = 0
    statements: int = 0
    sent: int = 0
    received: int = 0

    def note(self, message: str) -> None:
        """Count one frontend message: Query and Sync are what a client waits on."""
        self.round_trips += message in ("Q", "S")
        self.statements += message in ("Q", "E")

    def reset(self) -> None:
        """Forget what was counted so far."""
        self.round_trips = self.statements = self.sent = self.received = 0


class FrontendMessages:
    """Splits the bytes a client sends into messages, whatever the chunks they arrive in."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._started = False

    def feed(self, data: bytes) -> list[tuple[str, bytes]]:
        """The messages completed by these bytes: type letter and the whole message."""
        self._buffer += data
        messages: list[tuple[str, bytes]] = []
        while (message := self._take()) is not None:
            messages.append(message)
        return messages

    def _take(self) -> tuple[str, bytes] | None:
        head = 1 if self._started else 0  # startup messages have no type byte
        if len(self._buffer) < head + 4:
            return None
        length = head + int.from_bytes(self._buffer[head : head + 4], "big")
        if len(self._buffer) < length:
            return None
        message = bytes(self._buffer[:length])
        del self._buffer[:length]
        if self._started:
            return chr(message[0]), message
        if int.from_bytes(message[4:8], "big") in _REFUSED_REQUESTS:
            return _REFUSED, message
        self._started = True
        return _STARTUP, message


class WireProxy:
    """Listens on a local port, forwards to a server, counts. Use as a context manager."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.traffic = Traffic()

    @property
    def port(self) -> int:
        """Where to connect."""
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._server is not None
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        back_reader, back_writer = await asyncio.open_connection(*self._target)
        pumps = {
            asyncio.create_task(self._to_server(reader, writer, back_writer)),
            asyncio.create_task(self._to_client(back_reader, writer)),
        }
        self._tasks |= pumps
        await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        for end in (writer, back_writer):
            end.close()
        for pump in pumps:
            pump.cancel()
            with suppress(asyncio.CancelledError, ConnectionError):
                await pump
        self._tasks -= pumps

    async def _to_server(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        back_writer: asyncio.StreamWriter,
    ) -> None:
        messages = FrontendMessages()
        while data := await reader.read(1 << 16):
            self.traffic.sent += len(data)
            for kind, message in messages.feed(data):
                if kind == _REFUSED:
                    writer.write(b"N")
                    continue
                self.traffic.note(kind)
                back_writer.write(message)
            await back_writer.drain()

    async def _to_client(
        self, back_reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        while data := await back_reader.read(1 << 16):
            self.traffic.received += len(data)
            writer.write(data)
            await writer.drain()
