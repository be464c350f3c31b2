"""Low-cost clients: one request per connection, and the arrival times of its bytes."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

PATIENCE: Final = 900.0
"""Seconds after which a client gives up on a response."""
_END_OF_HEAD: Final = b"\r\n\r\n"


@dataclass(frozen=True, slots=True)
class Request:
    """A request; a POST if it has a body."""

    path: str
    body: Any = None
    headers: Mapping[str, str] | None = None

    def text(self, host: str) -> bytes:
        """The bytes to send."""
        body = b"" if self.body is None else json.dumps(self.body).encode()
        headers = {"Host": host, "Connection": "close", **(self.headers or {})}
        if body:
            headers |= {"Content-Type": "application/json", "Content-Length": str(len(body))}
        lines = [f"{'POST' if body else 'GET'} {self.path} HTTP/1.1"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        return "\r\n".join([*lines, "", ""]).encode() + body


@dataclass(frozen=True, slots=True)
class Reply:
    """A response, and the seconds until its parts arrived; None for a mark that never arrived."""

    raw: bytes
    first_byte: float  # of the body
    first_mark: float | None
    whole: float

    @property
    def status(self) -> int:
        """The status code."""
        return int(self.raw.split(b" ", 2)[1])

    def json(self) -> Any:
        """The body of an answer that is no stream."""
        if not 200 <= self.status < 300:
            raise ValueError(self.raw.decode())
        return json.loads(self.raw.partition(_END_OF_HEAD)[2])


class _Exchange(asyncio.Protocol):
    """One request and its answer."""

    def __init__(self, request: bytes, mark: bytes, began: float) -> None:
        self._request = request
        self._mark = mark
        self._began = began
        self._raw = bytearray()
        self._body_at = 0  # where the body begins, once the head is complete
        self._first_byte = 0.0
        self._first_mark: float | None = None
        self.reply: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        self._raw += data
        if not self._first_byte:
            self._look_for_body()
        if self._first_mark is None and self._mark in self._raw:
            self._first_mark = time.monotonic() - self._began

    def _look_for_body(self) -> None:
        end = self._raw.find(_END_OF_HEAD)
        if 0 <= end < len(self._raw) - len(_END_OF_HEAD):
            self._first_byte = time.monotonic() - self._began

    def connection_lost(self, exc: Exception | None) -> None:
        if self.reply.done():
            return
        if exc is not None or not self._raw:
            self.reply.set_exception(exc or ConnectionError("The server said nothing."))
            return
        whole = time.monotonic() - self._began
        self.reply.set_result(Reply(bytes(self._raw), self._first_byte, self._first_mark, whole))


async def ask(base: str, request: Request, mark: bytes = b"\n") -> Reply:
    """Send a request, and read the response to its end."""
    host, _, port = base.rpartition("/")[2].partition(":")
    exchange = _Exchange(request.text(host), mark, time.monotonic())
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(PATIENCE):
        transport, _ = await loop.create_connection(lambda: exchange, host, int(port))
        try:
            return await exchange.reply
        finally:
            transport.close()
