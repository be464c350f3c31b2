"""Connections that die silently, as when a NAT or a firewall drops an idle one.

No reset comes back: a statement sent over such a connection waits for its whole timeout, and so
does a graceful close. So TCP keepalives probe an idle connection, which also keeps a NAT from
dropping it; a connection that was idle for a while is tested before it is used; and one that does
not answer in time is terminated, never closed gracefully.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final
from weakref import WeakKeyDictionary

from sqlalchemy import Engine, Pool, event
from sqlalchemy.exc import InvalidatePoolError
from sqlalchemy.ext.asyncio import AsyncEngine

from lango.errors import UnsupportedUrlError

logger = logging.getLogger(__name__)

TRY_AFTER: Final = 5.0
"""Seconds without use after which a connection is tested before its next use."""
ANSWERS_WITHIN: Final = 0.5
"""Seconds that it then has to answer; one that does not is replaced."""
CLOSES_WITHIN: Final = 2.0
"""Seconds that the server has to end a connection that is closed gracefully."""
_USED: Final = "lango_used"

SERVER_SETTINGS: Final = {
    "tcp_keepalives_idle": "60",
    "tcp_keepalives_interval": "10",
    "tcp_keepalives_count": "3",
}
"""Let the server notice clients that vanished: by default it keeps their connections for hours."""


@dataclass(frozen=True, slots=True)
class Keepalive:
    """TCP's options for a silent peer, by libpq's names, which a URL may use."""

    keepalives: int = 1
    keepalives_idle: int = 10  # seconds without traffic until the first probe
    keepalives_interval: int = 5  # seconds between probes
    keepalives_count: int = 3
    tcp_user_timeout: int = 10_000  # milliseconds that sent bytes may stay unacknowledged

    @classmethod
    def of(cls, query: Mapping[str, Any]) -> Keepalive:
        """The options of a URL's query; UnsupportedUrlError for a value that is no number."""
        try:
            return cls(**{name: int(query[name]) for name in cls.names() if name in query})
        except (TypeError, ValueError) as problem:
            raise UnsupportedUrlError(
                f"{', '.join(cls.names())} in a database URL are whole numbers."
            ) from problem

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """The parameters of a URL that are not for the server."""
        return tuple(cls.__dataclass_fields__)

    def apply(self, transport: Any) -> None:
        """Set the options of a connection's socket, as far as the system has them."""
        tcp_socket = transport.get_extra_info("socket")
        if tcp_socket is None or tcp_socket.family not in (socket.AF_INET, socket.AF_INET6):
            return
        tcp_socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, self.keepalives)
        for option, value in self._options().items():
            number = getattr(socket, option, None)
            if number is not None:
                tcp_socket.setsockopt(socket.IPPROTO_TCP, number, value)

    def _options(self) -> dict[str, int]:
        options = {"TCP_USER_TIMEOUT": self.tcp_user_timeout}
        if self.keepalives:
            options |= {
                "TCP_KEEPIDLE": self.keepalives_idle,
                "TCP_KEEPINTVL": self.keepalives_interval,
                "TCP_KEEPCNT": self.keepalives_count,
            }
        return {name: value for name, value in options.items() if value}  # 0: system default


def connection_class(asyncpg: Any, keepalive: Keepalive) -> Any:
    """asyncpg's connection class, with these options and a timeout for its close."""

    usual: Any = asyncpg.Connection

    class Connection(usual):
        def __init__(self, protocol: Any, transport: Any, *arguments: Any) -> None:
            usual.__init__(self, protocol, transport, *arguments)
            keepalive.apply(transport)

        async def close(self, *, timeout: float | None = None) -> None:  # noqa: ASYNC109 - its own
            try:
                await usual.close(self, timeout=timeout or CLOSES_WITHIN)
            except TimeoutError:  # it is aborted, which is as good
                logger.info("a connection was aborted: the server did not end it in time")

    return Connection


async def answers(raw: Any) -> bool:
    """Whether the server answers in time over asyncpg's connection; else it is terminated.

    A timeout of asyncpg's own would ask the server to cancel, over one more connection.
    """
    late = asyncio.get_running_loop().call_later(ANSWERS_WITHIN, raw.terminate)
    try:
        await raw.execute("select 1")
    except Exception as error:  # noqa: BLE001 - how it is gone does not matter
        logger.info("an idle connection is gone: %s", type(error).__name__)
        raw.terminate()
        return False
    finally:
        late.cancel()
    return not raw.is_closed()  # the answer and the timeout may coincide


def is_in_transaction(raw: Any) -> bool:
    """Whether asyncpg's connection is open and in a transaction, by the server's last answer."""
    return not raw.is_closed() and bool(raw.is_in_transaction())


def must_be_probed(last_used: float) -> bool:
    """Whether a connection may have died since `last_used`."""
    return time.monotonic() - last_used > TRY_AFTER


class IdleConnections:
    """Tests the idle connections of one engine before they are used, in its pool and outside.

    If one has died silently, so have all that were idle as long: only the first is waited for, and
    the others are terminated when they are next taken.
    """

    def __init__(self) -> None:
        self._dead_before = 0.0

    async def answers(self, raw: Any, last_used: float) -> bool:
        """Whether asyncpg's connection is usable; else it is terminated."""
        if not must_be_probed(last_used):
            return True
        if last_used < self._dead_before:
            raw.terminate()
            return False
        if await answers(raw):
            return True
        self._dead_before = time.monotonic() - TRY_AFTER
        return False

    def listen(self, pool: Pool) -> None:
        """Let a pool test idle connections at check-out."""
        event.listen(pool, "checkin", _note_use)
        event.listen(pool, "checkout", self._try)
        event.listen(pool, "close", _terminate_idle)

    def _try(self, connection: Any, record: Any, _lent: object) -> None:
        last_used = record.info.get(_USED)
        if last_used is None or not must_be_probed(last_used):
            return
        if not connection.run_async(partial(self.answers, last_used=last_used)):
            raise InvalidatePoolError("An idle connection to the database is gone.")


def _note_use(_connection: object, record: Any) -> None:
    record.info[_USED] = time.monotonic()


def _terminate_idle(connection: Any, record: Any) -> None:
    """Terminate an idle connection: the graceful close of a dead one would wait for an answer."""
    last_used = record.info.get(_USED)
    if last_used is not None and must_be_probed(last_used):
        connection.driver_connection.terminate()


_OF_ENGINES: Final[WeakKeyDictionary[Engine, IdleConnections]] = WeakKeyDictionary()


def idle_connections(engine: AsyncEngine) -> IdleConnections:
    """The idle connections of an engine, which its pool tests from the first call on."""
    idle = _OF_ENGINES.get(engine.sync_engine)
    if idle is None:
        idle = _OF_ENGINES[engine.sync_engine] = IdleConnections()
        idle.listen(engine.sync_engine.pool)
    return idle
