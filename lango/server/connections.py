"""Connections: how many there may be, and how long a client may take to send and to read.

Limits of this kind are a proxy's daily work, and uvicorn leaves them to one. A server without a
proxy has them here, on top of uvicorn's own protocol.
"""

from __future__ import annotations

import asyncio
import logging
import resource
from typing import Any, Final

from starlette.types import ASGIApp, Receive, Scope, Send

from lango.core.extras import install
from lango.errors import ConfigError, ServerBusyError
from lango.server.hosts import PROBES
from lango.server.problems import answer

try:
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
except ImportError as _missing:  # FastAPI and uvicorn come with google-adk, httptools does not
    raise ConfigError(f"A server needs httptools: {install('server')}") from _missing

logger = logging.getLogger(__name__)

BESIDE_STREAMS: Final = 1_000
"""Connections beside those that streams may have."""
RESERVE: Final = 100
"""Connections above the limit that are accepted all the same: for probes, and to say "busy"."""
OTHER_FILES: Final = 200
"""Descriptors that a process needs beside its connections: for its database, models and files."""
KEEP_ALIVE: Final = 75
"""Seconds that a connection is kept between requests; proxies drop theirs after 60."""
PATIENCE: Final = 20.0
"""Seconds in which the head of a request must be there, and that its body may be behind."""
LEAST_RATE: Final = 8_192
"""Bytes a second at which a body must come, but for PATIENCE."""
UNREAD: Final = 60.0
"""Seconds in which a client must read some of an answer that is ready for it."""
MOST_OF_HEAD: Final = 65_536
"""Bytes of a request's head."""
MOST_PIPELINED: Final = 16
"""Requests that a client may send on one connection without waiting for their answers."""
_REFUSAL: Final = "HTTP/1.1 {}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
_LATE: Final = _REFUSAL.format("408 Request Timeout").encode()
_TOO_LONG: Final = _REFUSAL.format("431 Request Header Fields Too Large").encode()


class OpenConnections:
    """The connections of one server, at most so many.

    A new one that finds no room takes it from the one that has waited longest for its client to
    say something. Only when all of them are being served is the server busy.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._open: set[PatientProtocol] = set()
        self._waiting: dict[PatientProtocol, None] = {}  # the longest-waiting first

    @property
    def are_too_many(self) -> bool:
        """Whether there are more than the server has room for."""
        return len(self._open) > self._most

    def add(self, new: PatientProtocol) -> None:
        """Take a connection in, if need be in place of one that waits."""
        if len(self._open) >= self._most and self._waiting:
            self._drop(next(iter(self._waiting)))
        self._open.add(new)
        self._waiting[new] = None
        if len(self._open) > self._most + RESERVE:
            self._drop(new)

    def wait(self, connection: PatientProtocol) -> None:
        """A connection has nothing to do until its client sends a request."""
        if connection in self._open:
            self._waiting[connection] = None

    def serve(self, connection: PatientProtocol) -> None:
        """A connection has a request to answer."""
        self._waiting.pop(connection, None)

    def remove(self, connection: PatientProtocol) -> None:
        """A connection is closed."""
        self._open.discard(connection)
        self._waiting.pop(connection, None)

    def _drop(self, connection: PatientProtocol) -> None:
        self.remove(connection)
        connection.transport.abort()


class PatientProtocol(HttpToolsProtocol):
    """uvicorn's protocol with limits to what a client may send, and to the time it may take.

    Between requests the keep-alive of uvicorn's own watches.
    """

    transport: asyncio.Transport

    def __init__(self, *args: Any, connections: OpenConnections, **options: Any) -> None:
        super().__init__(*args, **options)
        self._all = connections
        self._timer: asyncio.TimerHandle | None = None
        self._until = 0.0  # when the client is too late, by the loop's clock
        self._head = 0  # bytes of it that have come
        self._parsed_head = 0  # of these, path and headers of the request that is parsed
        self._unread: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Begin to wait for a request."""
        super().connection_made(transport)
        self._all.add(self)
        self._wait()

    def data_received(self, data: bytes) -> None:
        """Wait on, if that was not all."""
        super().data_received(data)
        if self._is_in_head:
            self._await_head(len(data))
        elif self.cycle.more_body:
            self._await_body(len(data))
        else:
            self._wait_no_more()

    def on_message_begin(self) -> None:
        """A request begins."""
        self._parsed_head = 0
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        """Take some of the path."""
        self._measure(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header."""
        self._measure(len(name) + len(value) + len(b": \r\n"))
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Have the request answered, or stop parsing: a client must wait for its answers."""
        self._head = 0
        self._wait_no_more()
        super().on_headers_complete()
        self._all.serve(self)
        if len(self.pipeline) > MOST_PIPELINED:
            raise _TooManyRequestsError

    def on_response_complete(self) -> None:
        """Wait for the next request, unless it is here already."""
        super().on_response_complete()
        if self.pipeline:
            self.flow.pause_reading()
        else:
            self._all.wait(self)

    def send_400_response(self, msg: str) -> None:
        """Refuse what cannot be parsed; where an answer is under way, nothing can be told."""
        if self._is_in_head and self._parsed_head > MOST_OF_HEAD:
            self._refuse(_TOO_LONG)
        elif self._is_in_head:
            super().send_400_response(msg)
        else:
            self.transport.close()

    def pause_writing(self) -> None:
        """The client does not read."""
        super().pause_writing()
        self._unread = self.loop.call_later(UNREAD, self.transport.abort)

    def resume_writing(self) -> None:
        """It reads again."""
        super().resume_writing()
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def connection_lost(self, exc: Exception | None) -> None:
        """Nobody is waited for any more."""
        self._wait_no_more()
        self._all.remove(self)
        super().connection_lost(exc)
        self.resume_writing()

    @property
    def _is_in_head(self) -> bool:
        return not self.cycle or self.cycle.response_complete

    def _measure(self, more: int) -> None:
        """Stop parsing a head that is too long, also where all of it came at once."""
        self._parsed_head += more
        if self._parsed_head > MOST_OF_HEAD:
            raise _TooLongError

    def _await_head(self, more: int) -> None:
        self._head += more
        if self._head > MOST_OF_HEAD:
            if self.cycle and self.cycle.more_body:  # of a request that was answered without it
                self.transport.close()
            self._refuse(_TOO_LONG)
        elif self._timer is None:
            self._wait()

    def _await_body(self, more: int) -> None:
        if self._timer is None:
            self._wait()
        else:
            latest = self.loop.time() + PATIENCE
            self._until = min(self._until + more / LEAST_RATE, latest)

    def _wait(self) -> None:
        self._until = self.loop.time() + PATIENCE
        self._timer = self.loop.call_at(self._until, self._give_up)

    def _wait_no_more(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _give_up(self) -> None:
        if self.flow.read_paused:  # the client is not late: it is we who do not read
            self._wait()
        elif self._until > self.loop.time():  # some more has come meanwhile
            self._timer = self.loop.call_at(self._until, self._give_up)
        elif self._is_in_head:
            self._refuse(_LATE)
        else:
            self.transport.close()

    def _refuse(self, answer: bytes) -> None:
        if not self.transport.is_closing():
            self.transport.write(answer)
            self.transport.close()


class _TooManyRequestsError(Exception):
    """Ends the parsing of what a client has sent."""


class _TooLongError(Exception):
    """The same, of a head."""


class Crowd:
    """Answers for an application that is busy, where there are more connections than may be."""

    def __init__(self, app: ASGIApp, connections: OpenConnections) -> None:
        self._app = app
        self._connections = connections

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it and close its connection."""
        if not self._connections.are_too_many or scope["path"] in PROBES:
            await self._app(scope, receive, send)
            return
        refusal = answer(ServerBusyError(), scope)
        refusal.headers["Connection"] = "close"
        await refusal(scope, receive, send)


def room_for(wanted: int) -> int:
    """How many connections this process can have, up to those wanted.

    Raises its limit of open files as far as that is allowed.
    """
    files = wanted + RESERVE + OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < files:
        allowed = files if hard == resource.RLIM_INFINITY else min(files, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
        soft = allowed
    if soft == resource.RLIM_INFINITY or soft >= files:
        return wanted
    room = max(soft - RESERVE - OTHER_FILES, 1)
    logger.warning(
        "This process may open %d files, so it takes %d connections at a time, not %d. "
        "Raise the limit: `ulimit -n %d`, or LimitNOFILE of the service.",
        *(soft, room, wanted, files),
    )
    return room
