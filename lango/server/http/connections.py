"""Limits of connections: their number, and the time that a client may take to send and to read.

Proxies enforce such limits, and uvicorn leaves them to one. This module adds them to uvicorn's
protocol, for a server without a proxy.
"""

from __future__ import annotations

import asyncio
import logging
import resource
from http import HTTPStatus
from typing import Any, Final

from starlette.types import ASGIApp, Receive, Scope, Send

from lango.core.extras import install
from lango.errors import ConfigError, ServerBusyError
from lango.server.http.access_log import HEADER as REQUEST_ID
from lango.server.http.access_log import log_refusal
from lango.server.http.headers import JsonHeaders
from lango.server.http.hosts import PROBES
from lango.server.http.problems import answer

try:
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
except ImportError as _missing:  # FastAPI and uvicorn come with google-adk, httptools does not
    raise ConfigError(f"A server needs httptools: {install('server')}") from _missing

logger = logging.getLogger(__name__)

BESIDE_STREAMS: Final = 1_000
"""Connections in addition to those of streams."""
RESERVE: Final = 100
"""Connections accepted above the limit: for probes, and to answer that the server is busy."""
OTHER_FILES: Final = 200
"""File descriptors for anything but connections: database, models and files."""
KEEP_ALIVE: Final = 75
"""Seconds that an idle connection stays open; proxies close theirs after 60."""
PATIENCE: Final = 20.0
"""Seconds for the head of a request, and the most that its body may fall behind LEAST_RATE."""
LEAST_RATE: Final = 8_192
"""Bytes per second at which a body must arrive, with PATIENCE as slack."""
UNREAD: Final = 60.0
"""Seconds after which the server drops a client that does not read its answer."""
MAX_HEAD_BYTES: Final = 65_536
"""Limit of the bytes of a request's head."""
MAX_PIPELINED: Final = 16
"""Pipelined requests per connection: sent without waiting for the answers."""
_REFUSAL: Final = "HTTP/1.1 {:d} {}\r\n{}: {}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"


class OpenConnections:
    """The connections of one server, limited in number.

    At the limit, a new connection replaces the one that has waited longest for a request. The
    server is busy only when all connections have a request to answer.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._open: set[LimitedProtocol] = set()
        self._waiting: dict[LimitedProtocol, None] = {}  # the longest wait first

    @property
    def are_too_many(self) -> bool:
        """Whether there are more connections than the limit."""
        return len(self._open) > self._limit

    def add(self, new: LimitedProtocol) -> None:
        """Add a connection; at the limit, drop one that waits for a request."""
        if len(self._open) >= self._limit and self._waiting:
            self._drop(next(iter(self._waiting)))
        self._open.add(new)
        self._waiting[new] = None
        if len(self._open) > self._limit + RESERVE:
            self._drop(new)

    def wait(self, connection: LimitedProtocol) -> None:
        """Mark a connection as waiting for a request."""
        if connection in self._open:
            self._waiting[connection] = None

    def serve(self, connection: LimitedProtocol) -> None:
        """Mark a connection as serving a request."""
        self._waiting.pop(connection, None)

    def remove(self, connection: LimitedProtocol) -> None:
        """Remove a closed connection."""
        self._open.discard(connection)
        self._waiting.pop(connection, None)

    def _drop(self, connection: LimitedProtocol) -> None:
        self.remove(connection)
        connection.transport.abort()


class LimitedProtocol(HttpToolsProtocol):
    """uvicorn's protocol with limits to what a client may send, and to the time it may take.

    Between requests, uvicorn's own keep-alive timeout applies.
    """

    transport: asyncio.Transport

    def __init__(self, *args: Any, connections: OpenConnections, **options: Any) -> None:
        super().__init__(*args, **options)
        self._all = connections
        self._timer: asyncio.TimerHandle | None = None
        self._until = 0.0  # the client's deadline, by the loop's clock
        self._head = 0  # bytes received of it
        self._parsed_head = 0  # of these, path and headers of the current request
        self._began = 0.0  # when the connection or its last request began
        self._unread: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Wait for a request."""
        super().connection_made(transport)
        self._began = self.loop.time()
        self._all.add(self)
        self._wait()

    def data_received(self, data: bytes) -> None:
        """Parse the data, and wait for the rest of the head or body if incomplete."""
        super().data_received(data)
        if self._is_in_head:
            self._await_head(len(data))
        elif self.cycle.more_body:
            self._await_body(len(data))
        else:
            self._wait_no_more()

    def on_message_begin(self) -> None:
        """Start counting the bytes and the time of a request's head."""
        self._parsed_head = 0
        self._began = self.loop.time()
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        """Count a part of the path."""
        self._measure(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Count a header."""
        self._measure(len(name) + len(value) + len(b": \r\n"))
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Start to answer the request; stop parsing if the client pipelines too many."""
        self._head = 0
        self._wait_no_more()
        super().on_headers_complete()
        self._all.serve(self)
        if len(self.pipeline) > MAX_PIPELINED:
            raise _TooManyRequestsError

    def on_response_complete(self) -> None:
        """Wait for the next request, unless one is already in the pipeline."""
        super().on_response_complete()
        if self.pipeline:
            self.flow.pause_reading()
        else:
            self._all.wait(self)

    def send_400_response(self, msg: str) -> None:
        """Refuse malformed data; during an answer, only close the connection."""
        del msg  # uvicorn logs it
        if self._is_in_head and self._parsed_head > MAX_HEAD_BYTES:
            self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
        elif self._is_in_head:
            self._refuse(HTTPStatus.BAD_REQUEST)
        else:
            self.transport.close()

    def pause_writing(self) -> None:
        """Start the timer for a client that does not read."""
        super().pause_writing()
        self._unread = self.loop.call_later(UNREAD, self.transport.abort)

    def resume_writing(self) -> None:
        """Stop that timer: the client reads again."""
        super().resume_writing()
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop all timers and remove the connection."""
        self._wait_no_more()
        self._all.remove(self)
        super().connection_lost(exc)
        self.resume_writing()

    @property
    def _is_in_head(self) -> bool:
        return not self.cycle or self.cycle.response_complete

    def _measure(self, size: int) -> None:
        """Stop parsing a head that is too long, even if all of it came at once."""
        self._parsed_head += size
        if self._parsed_head > MAX_HEAD_BYTES:
            raise _TooLongError

    def _await_head(self, size: int) -> None:
        self._head += size
        if self._head > MAX_HEAD_BYTES:
            if self.cycle and self.cycle.more_body:  # its request was answered early
                self.transport.close()
            self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
        elif self._timer is None:
            self._wait()

    def _await_body(self, size: int) -> None:
        if self._timer is None:
            self._wait()
        else:
            latest = self.loop.time() + PATIENCE
            self._until = min(self._until + size / LEAST_RATE, latest)

    def _wait(self) -> None:
        self._until = self.loop.time() + PATIENCE
        self._timer = self.loop.call_at(self._until, self._give_up)

    def _wait_no_more(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _give_up(self) -> None:
        if self.flow.read_paused:  # the server paused reading: the client is not late
            self._wait()
        elif self._until > self.loop.time():  # more data has come
            self._timer = self.loop.call_at(self._until, self._give_up)
        elif self._is_in_head:
            self._refuse(HTTPStatus.REQUEST_TIMEOUT)
        else:
            self.transport.close()

    def _refuse(self, status: HTTPStatus) -> None:
        """Answer a request that the application never sees, and close the connection."""
        if not self.transport.is_closing():
            client = self.client[0] if self.client else None
            sent_id = log_refusal(client, status, self.loop.time() - self._began)
            answer = _REFUSAL.format(status, status.phrase, REQUEST_ID, sent_id)
            self.transport.write(answer.encode())
            self.transport.close()


class _TooManyRequestsError(Exception):
    """Stops the parser: too many pipelined requests."""


class _TooLongError(Exception):
    """Stops the parser: the head is too long."""


class ConnectionLimit:
    """Middleware that answers ServerBusyError above the limit of connections.

    `served` is the application below all middleware, whose forms of problems it uses.
    """

    def __init__(self, app: ASGIApp, connections: OpenConnections, served: ASGIApp) -> None:
        self._app = app
        self._connections = connections
        self._served = served

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it and close its connection."""
        if not self._connections.are_too_many or scope["path"] in PROBES:
            await self._app(scope, receive, send)
            return
        refusal = answer(ServerBusyError(), {**scope, "app": self._served})
        refusal.headers["Connection"] = "close"
        await JsonHeaders(refusal)(scope, receive, send)


def connection_limit(connections: int) -> int:
    """How many connections this process can have, up to `connections`.

    Raises the process's limit of open files if needed, as far as the hard limit allows.
    """
    files = connections + RESERVE + OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < files:
        allowed = files if hard == resource.RLIM_INFINITY else min(files, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
        soft = allowed
    if soft == resource.RLIM_INFINITY or soft >= files:
        return connections
    room = max(soft - RESERVE - OTHER_FILES, 1)
    logger.warning(
        "This process may open %d files, so it takes %d connections at a time, not %d. "
        "Raise the limit: `ulimit -n %d`, or LimitNOFILE of the service.",
        *(soft, room, connections, files),
    )
    return room
