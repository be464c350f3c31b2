"""Connections: how many there may be, and how long a client may take to say what it wants."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from starlette.types import ASGIApp, Receive, Scope, Send

from lango.errors import ConfigError, ServerBusyError
from lango.server.hosts import PROBES
from lango.server.problems import answer

try:
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
except ImportError as _missing:  # FastAPI and uvicorn come with google-adk, httptools does not
    raise ConfigError('A server needs httptools: pip install "lango-adk[server]"') from _missing

BESIDE_STREAMS: Final = 1_000
"""Connections beside those that streams may have."""
KEEP_ALIVE: Final = 75
"""Seconds that a connection is kept between requests; proxies drop theirs after 60."""
PATIENCE: Final = 20.0
"""Seconds in which the head of a request must be there, and then each piece of its body."""
MOST_OF_HEAD: Final = 65_536
"""Bytes of a request's head that are waited for: so much, and what came with the last of it."""
_REFUSAL: Final = "HTTP/1.1 {}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
_LATE: Final = _REFUSAL.format("408 Request Timeout").encode()
_TOO_LONG: Final = _REFUSAL.format("431 Request Header Fields Too Large").encode()


class PatientProtocol(HttpToolsProtocol):
    """uvicorn's protocol, to which a client could send a head of any length, in any time.

    Who opens connections and says little on them would have them all, and who never ends a head
    all memory. Between requests the keep-alive of uvicorn's own watches.
    """

    _deadline: asyncio.TimerHandle | None = None
    _head = 0  # bytes of it that have come

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Begin to wait for a request."""
        super().connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        """Wait on, if that was not all."""
        super().data_received(data)
        if self._is_in_head:
            self._await_head(len(data))
        else:
            self._head = 0
            self._wait_no_more()
            if self.cycle.more_body:
                self._wait()

    def _await_head(self, more: int) -> None:
        self._head += more
        if self.cycle and self.cycle.more_body:  # of a request that was answered without it
            self.transport.close()
        elif self._head > MOST_OF_HEAD:
            self._refuse(_TOO_LONG)
        elif self._deadline is None:
            self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nobody is waited for any more."""
        self._wait_no_more()
        super().connection_lost(exc)

    @property
    def _is_in_head(self) -> bool:
        return not self.cycle or self.cycle.response_complete

    def _wait(self) -> None:
        self._deadline = self.loop.call_later(PATIENCE, self._give_up)

    def _wait_no_more(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _give_up(self) -> None:
        if self.flow.read_paused:  # the client is not late: it is we who do not read
            self._wait()
        elif self._is_in_head:
            self._refuse(_LATE)
        else:
            self.transport.close()

    def _refuse(self, answer: bytes) -> None:
        if not self.transport.is_closing():
            self.transport.write(answer)
            self.transport.close()


class Crowd:
    """Answers for an application that is busy, where there are more connections than may be."""

    def __init__(self, app: ASGIApp, most: int) -> None:
        self.count: Callable[[], int] = lambda: 0
        self._app = app
        self._most = most

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it and close its connection."""
        if self.count() <= self._most or scope["path"] in PROBES:
            await self._app(scope, receive, send)
            return
        refusal = answer(ServerBusyError(), scope)
        refusal.headers["Connection"] = "close"
        await refusal(scope, receive, send)
