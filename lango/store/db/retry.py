"""Which database faults are transient, and how operations are retried after them.

Every operation of the store can be repeated safely: a retry recognises appends by their event id,
and sessions by the public id that was made before the first try.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from collections.abc import Awaitable, Callable, Generator, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final, TypeVar

from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from lango.core.backoff import delays
from lango.errors import LangoError, StoreBusyError, StoreUnavailableError
from lango.store.db.sqlite.driver import ROLLED_BACK

T = TypeVar("T")
logger = logging.getLogger(__name__)

RETRIES: Final = 9  # over about seven seconds
RETRY_FOR: Final = 30.0
"""Seconds after which nothing is retried, if each try takes long, as with a locked row."""
_outlasts_outages: ContextVar[bool] = ContextVar("lango_outlasts_outages", default=False)

_READ_ONLY: Final = "25006"
"""The server was demoted, or the connection was opened on a replica."""
_OUT_OF_STEP: Final = {"25P01", "25P02", "26000"}
"""The driver expects a transaction that did not begin, or one that did not end after an error; or a
prepared statement that its pooler does not keep track of any more.
"""
_LOCKED: Final = "55P03"
_CANCELLED: Final = "57014"
"""An operator cancelled the statement, or it took longer than `statement_timeout`."""
_TRANSIENT_STATES: Final = {
    _READ_ONLY,
    *_OUT_OF_STEP,
    "25P03",  # idle in transaction for too long: its process was frozen
    "40001",  # serialization failure
    "40P01",  # deadlock detected
    "53000",  # insufficient resources
    "53100",  # disk full
    "53200",  # out of memory
    "53300",  # too many connections
    _LOCKED,
    _CANCELLED,
    "57P01",  # admin shutdown
    "57P02",  # crash shutdown
    "57P03",  # cannot connect now
    "57P04",  # database dropped
    "57P05",  # idle session timeout
}
# asyncpg's errors for a lost connection carry no state. It raises the second when the server closes
# the connection just as a statement is being sent, the third when no server of several is the
# primary.
_CONNECTION_GONE: Final = {
    "InterfaceError",
    "InternalClientError",
    "TargetServerAttributeNotMatched",
}
_SQLITE_TRANSIENT: Final = (
    "database is locked",
    "database or disk is full",
    "disk I/O error",
    ROLLED_BACK,
)
_DUPLICATE_STATE: Final = "23505"
_SQLITE_DUPLICATE: Final = "UNIQUE constraint failed"


def _causes(error: BaseException) -> Iterator[BaseException]:
    error_ids: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in error_ids:
        error_ids.add(id(current))
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
        if isinstance(cause, ssl.SSLCertVerificationError):
            return False
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


def is_out_of_step(error: BaseException) -> bool:
    """Whether the connection, though open, refuses statements that a new one may take."""
    return not _OUT_OF_STEP.isdisjoint(states(error))


def is_cancelled(error: BaseException) -> bool:
    """Whether the server cancelled a statement, even the driver's own, as a begin or rollback."""
    return _CANCELLED in states(error)


def is_locked_out(error: BaseException) -> bool:
    """Whether a statement timed out while it waited for a row's lock."""
    return _LOCKED in states(error)


@contextmanager
def as_lango_errors() -> Generator[None]:
    """Inside, StoreBusyError replaces the pool's own error when no connection becomes free."""
    try:
        yield
    except PoolTimeoutError as error:
        raise StoreBusyError from error


def is_duplicate(error: BaseException) -> bool:
    """Whether a unique key refused the row: it is there already."""
    if _DUPLICATE_STATE in states(error):
        return True
    return any(_SQLITE_DUPLICATE in str(cause) for cause in _causes(error))


def outlast_outages() -> None:
    """Let this task, and those that it starts, retry for as long as the database is unavailable.

    For a running turn: to wait costs nothing, and to fail would repeat paid work. When the
    database is back, the fence decides whether the turn still belongs to this worker.
    """
    _outlasts_outages.set(True)


def _waits() -> Iterator[float]:
    """Seconds between tries: for ever in a task that outlasts outages."""
    return delays(None if _outlasts_outages.get() else RETRIES)


def _is_over(error: BaseException, began: float, attempt_began: float) -> bool:
    """Whether the time is up; no task retries for ever what is too slow for the server."""
    now = time.monotonic()
    if _outlasts_outages.get():
        return is_cancelled(error) and now - attempt_began >= RETRY_FOR
    return now - began > RETRY_FOR


async def retrying(operation: Callable[[], Awaitable[T]]) -> T:
    """Run the operation; retry it after a transient fault, until the tries are used up.

    An aborted transaction is retried once, with a new connection. If that one is aborted as well,
    the operation itself continues after an error: it would never succeed.
    """
    waits, began, was_out_of_step = _waits(), time.monotonic(), False
    while True:
        attempt_began = time.monotonic()
        try:
            return await operation()
        except Exception as error:
            if not is_transient(error) or (was_out_of_step and is_out_of_step(error)):
                raise
            was_out_of_step = was_out_of_step or is_out_of_step(error)
            delay = next(waits, None)
            if _is_over(error, began, attempt_began):
                delay = None
            if delay is None and isinstance(error, StoreUnavailableError):
                raise
            if delay is None:
                kind = StoreBusyError if is_locked_out(error) else StoreUnavailableError
                raise kind(f"{kind.__doc__} The last fault was {type(error).__name__}.") from error
            logger.info("Transient fault of the storage; retrying: %s", type(error).__name__)
        await asyncio.sleep(delay)
