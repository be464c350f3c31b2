"""Which database faults pass by themselves, and trying again until they have.

Everything the store does may safely be done twice: appends are known by their event id, sessions
by the public id made before the first try.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterator
from contextvars import ContextVar
from itertools import chain, repeat
from typing import Final, TypeVar

from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from lango.core.backoff import delays
from lango.errors import LangoError, StoreUnavailableError

T = TypeVar("T")
logger = logging.getLogger(__name__)

TRIES: Final = 9  # again, over about seven seconds
RETRY_FOR: Final = 30.0
"""Seconds after which nothing is tried again, if each try takes long, as with a locked row."""
_LONGEST_WAIT: Final = 2.0
_outlasts_outages: ContextVar[bool] = ContextVar("lango_outlasts_outages", default=False)

_READ_ONLY: Final = "25006"
"""The server was demoted, or the connection was opened on a replica."""
_TRANSIENT_STATES: Final = {
    _READ_ONLY,
    "25P02",  # a transaction that failed before, and was not rolled back
    "25P03",  # the transaction stood still for too long, as did its process
    "40001",  # serialization failure
    "40P01",  # deadlock detected
    "53000",  # insufficient resources
    "53100",  # disk full
    "53200",  # out of memory
    "53300",  # too many connections
    "55P03",  # lock not available
    "57P01",  # admin shutdown
    "57P02",  # crash shutdown
    "57P03",  # cannot connect now
    "57P04",  # database dropped
    "57P05",  # idle session timeout
}
_STALE_STATES: Final = {_READ_ONLY, "25P02"}
"""The connection stays open, and every statement on it is refused from now on."""
# asyncpg's words for a connection that went away under us carry no state. The second is raised
# when the server's farewell arrives just as a statement is being sent, the third when no server
# of several is the primary.
_CONNECTION_GONE: Final = {
    "InterfaceError",
    "InternalClientError",
    "TargetServerAttributeNotMatched",
}
_SQLITE_TRANSIENT: Final = (
    "database is locked",
    "database or disk is full",
    "disk I/O error",
)
_DUPLICATE_STATE: Final = "23505"
_SQLITE_DUPLICATE: Final = "UNIQUE constraint failed"


def _causes(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield current
        current = getattr(current, "orig", None) or current.__cause__


def states(error: BaseException) -> Iterator[str]:
    """The SQLSTATEs of an error and of what caused it; "" where there is none."""
    return (str(getattr(cause, "sqlstate", None) or "") for cause in _causes(error))


def is_transient(error: BaseException) -> bool:
    """Whether the same statement may succeed in a moment."""
    if isinstance(error, LangoError):
        return isinstance(error, StoreUnavailableError)
    if isinstance(error, DBAPIError) and error.connection_invalidated:
        return True
    if isinstance(error, PoolTimeoutError):
        return True
    if any(state in _TRANSIENT_STATES or state.startswith("08") for state in states(error)):
        return True
    for cause in _causes(error):
        if isinstance(cause, (ConnectionError, TimeoutError, OSError)):
            return True
        if type(cause).__name__ in _CONNECTION_GONE:
            return True
        if any(words in str(cause) for words in _SQLITE_TRANSIENT):
            return True
    return False


def is_read_only(error: BaseException) -> bool:
    """Whether the server takes no writes; after a failover all open connections may lead there."""
    return _READ_ONLY in states(error)


def is_stale(error: BaseException) -> bool:
    """Whether a new connection may do what this one, though open, cannot do any more."""
    return any(state in _STALE_STATES for state in states(error))


def is_duplicate(error: BaseException) -> bool:
    """Whether a unique key refused the row: it is there already."""
    if _DUPLICATE_STATE in states(error):
        return True
    return any(_SQLITE_DUPLICATE in str(cause) for cause in _causes(error))


def outlast_outages() -> None:
    """Let this task, and those that it starts, retry for as long as the database is away.

    For a turn that runs: to wait costs nothing, and to fail would repeat paid work. When the
    database is back the fence decides whether the turn still belongs to this worker.
    """
    _outlasts_outages.set(True)


def _waits() -> Iterator[float]:
    """Seconds between tries: for ever in a task that outlasts outages."""
    if _outlasts_outages.get():
        return chain(delays(TRIES), repeat(_LONGEST_WAIT))
    return delays(TRIES)


async def retrying(operation: Callable[[], Awaitable[T]]) -> T:
    """Do it, again after a transient fault, until the tries are used up."""
    waits, began = _waits(), time.monotonic()
    while True:
        try:
            return await operation()
        except Exception as error:
            if not is_transient(error):
                raise
            delay = next(waits, None)
            if time.monotonic() - began > RETRY_FOR and not _outlasts_outages.get():
                delay = None
            if delay is None and isinstance(error, StoreUnavailableError):
                raise
            if delay is None:
                raise StoreUnavailableError(
                    f"{StoreUnavailableError.__doc__} The last fault was {type(error).__name__}."
                ) from error
            logger.info("transient database fault, trying again: %s", type(error).__name__)
        await asyncio.sleep(delay)
