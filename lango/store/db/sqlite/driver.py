"""Two kinds of connections to SQLite: on the event loop's own thread, and in a thread apart.

SQLite has one writer. A statement that goes to a thread, and whose result then waits for a pass of
the event loop, keeps it for all that time: milliseconds on a busy loop. An `InlineConnection`
executes at once, so that a transaction takes only the time of its statements. A `ThreadConnection`
is aiosqlite's, with one trip to its thread for each statement: for work that would block the event
loop for long.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Awaitable, Callable, Sequence
from itertools import chain, repeat
from typing import Any, Final, NamedTuple, Protocol, Self, TypeVar, TypeVarTuple, cast

import aiosqlite
import sqlalchemy as sa

T = TypeVar("T")
Args = TypeVarTuple("Args")
Work = Callable[[sqlite3.Connection, str, Any], sqlite3.Cursor]

_EXECUTE: Final[Work] = sqlite3.Connection.execute
_EXECUTE_MANY: Final[Work] = sqlite3.Connection.executemany
_WHILE_LOCKED: Final = (0.001, 0.002, 0.005, 0.01, 0.02, 0.03)
"""Seconds between tries for a lock that another process holds, the last one repeatedly."""
_PRIMARY_CODE: Final = 0xFF

ROLLED_BACK: Final = "the transaction did not begin, or an error has rolled it back"


class Result(NamedTuple):
    """The result of a statement whose cursor is closed."""

    rows: list[Any]
    description: Any  # as PEP 249 has it; None if the statement returns no rows
    rowcount: int
    lastrowid: int | None


_NOTHING = Result([], None, -1, None)


class _Executes(Protocol):
    async def run_statement(self, work: Work, sql: str, parameters: Any, /) -> Result: ...


class SqliteCursor:
    """The part of a cursor that SQLAlchemy uses; it holds no statement open."""

    arraysize = 1

    def __init__(self, connection: _Executes) -> None:
        self._connection = connection
        self._result = _NOTHING

    async def __aenter__(self) -> Self:
        return self

    @property
    def description(self) -> Any:
        """The columns of the result."""
        return self._result.description

    @property
    def rowcount(self) -> int:
        """How many rows were changed."""
        return self._result.rowcount

    @property
    def lastrowid(self) -> int | None:
        """The key of the row that was inserted."""
        return self._result.lastrowid

    async def execute(self, sql: str, parameters: Sequence[Any] = ()) -> None:
        """Execute one statement, and fetch its rows."""
        self._result = await self._connection.run_statement(_EXECUTE, sql, parameters)

    async def executemany(self, sql: str, parameters: Sequence[Sequence[Any]]) -> None:
        """Execute one statement for each set of values."""
        self._result = await self._connection.run_statement(_EXECUTE_MANY, sql, parameters)

    async def fetchall(self) -> list[Any]:
        """The rows, which are here already."""
        return self._result.rows

    async def close(self) -> None:
        """Do nothing: no statement is open."""


class InlineConnection:
    """A connection that executes on the event loop's own thread.

    Set `begin_with` to the statement that begins a transaction: it runs with the next one. It
    alone waits for the locks of other processes, `busy_timeout` seconds, and lets the loop run.
    """

    def __init__(self, connection: sqlite3.Connection, busy_timeout: float) -> None:
        self._connection = connection
        self._busy_timeout = busy_timeout
        self._is_begun = False
        self.begin_with: str | None = None

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open."""
        return self._connection.in_transaction

    def cursor(self) -> SqliteCursor:
        """A cursor for SQLAlchemy."""
        return SqliteCursor(self)

    async def run_statement(self, work: Work, sql: str, parameters: Any) -> Result:
        """Execute a statement, after the one that begins its transaction."""
        if self.begin_with is not None:
            await self.begin(self.begin_with)
        return _execute(self._connection, self._is_begun, work, sql, parameters)

    def fetch(self, sql: str, parameters: Sequence[Any]) -> list[Any]:
        """Execute a statement; its rows."""
        return _execute(self._connection, self._is_begun, _EXECUTE, sql, parameters).rows

    def execute_many(self, sql: str, parameters: Sequence[Sequence[Any]]) -> None:
        """Execute a statement for each set of values."""
        _execute(self._connection, self._is_begun, _EXECUTE_MANY, sql, parameters)

    async def begin(self, sql: str) -> None:
        """Begin a transaction, as soon as no other process has the lock."""
        self.begin_with, self._is_begun = None, True
        deadline = time.monotonic() + self._busy_timeout
        for wait in chain(_WHILE_LOCKED, repeat(_WHILE_LOCKED[-1])):
            try:
                self._connection.execute(sql).close()
            except sqlite3.OperationalError as error:
                if not is_busy(error) or time.monotonic() >= deadline:
                    raise
            else:
                return
            await asyncio.sleep(wait)

    async def commit(self) -> None:
        """Commit; nothing if no statement was executed."""
        if self._is_begun:
            _commit(self._connection)
        self._end()

    async def rollback(self) -> None:
        """Roll back; nothing if no statement was executed."""
        if self._is_begun:
            self._connection.rollback()
        self._end()

    def _end(self) -> None:
        self.begin_with, self._is_begun = None, False

    async def create_function(self, *arguments: Any, **options: Any) -> None:
        """Create a function for statements, as SQLAlchemy does."""
        self._connection.create_function(*arguments, **options)

    async def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def stop(self) -> None:
        """The same, where nothing can be awaited."""
        self._connection.close()


class ThreadConnection(aiosqlite.Connection):
    """A connection whose cursors make one trip to its thread for each statement.

    Set `begin_with` to the statement that begins a transaction: it runs with the next one.
    """

    def __init__(self, connect: Callable[[], sqlite3.Connection]) -> None:
        super().__init__(connect, iter_chunk_size=64)
        self._thread.daemon = True  # a process that ends does not wait for it
        self._is_begun = False
        self.begin_with: str | None = None

    def cursor(self) -> SqliteCursor:  # pyright: ignore[reportIncompatibleMethodOverride]
        """A cursor for SQLAlchemy."""
        return SqliteCursor(self)

    async def run_statement(self, work: Work, sql: str, parameters: Any) -> Result:
        """Execute a statement in the thread, after the one that begins its transaction."""
        begin, self.begin_with = self.begin_with, None
        self._is_begun = self._is_begun or begin is not None
        return await self._run(_begin_and_execute, begin, self._is_begun, work, sql, parameters)

    async def commit(self) -> None:
        """Commit; nothing if no statement was executed."""
        if self._is_begun:
            await self._run(_commit)
        self._end()

    async def rollback(self) -> None:
        """Roll back, after a statement whose task was cancelled; nothing if none was executed."""
        if self._is_begun:
            await self._run(sqlite3.Connection.rollback)
        self._end()

    def _end(self) -> None:
        self.begin_with, self._is_begun = None, False

    async def _run(self, work: Callable[[sqlite3.Connection, *Args], T], *arguments: *Args) -> T:
        """Work in the thread."""
        in_thread = cast("Callable[..., Awaitable[T]]", getattr(self, "_execute"))  # noqa: B009 - it has no types
        return await in_thread(work, self._conn, *arguments)


def _begin_and_execute(
    connection: sqlite3.Connection,
    begin: str | None,
    is_begun: bool,
    work: Work,
    sql: str,
    parameters: Any,
) -> Result:
    if begin is not None:
        connection.execute(begin).close()
    return _execute(connection, is_begun, work, sql, parameters)


def _execute(
    connection: sqlite3.Connection, is_begun: bool, work: Work, sql: str, parameters: Any
) -> Result:
    """Execute a statement, fetch its rows and close it."""
    if is_begun:
        _check(connection)
    cursor = work(connection, sql, parameters)
    try:
        rows = cursor.fetchall() if cursor.description else []
        return Result(rows, cursor.description, cursor.rowcount, cursor.lastrowid)
    finally:
        cursor.close()


def _commit(connection: sqlite3.Connection) -> None:
    _check(connection)
    connection.commit()


def _check(connection: sqlite3.Connection) -> None:
    """Refuse what SQLite would commit at once, as the transaction has ended before its time."""
    if not connection.in_transaction:
        raise sqlite3.OperationalError(ROLLED_BACK)


def is_busy(error: sqlite3.Error) -> bool:
    """Whether another connection has the lock."""
    code = getattr(error, "sqlite_errorcode", 0)  # Python's own errors have none
    return code & _PRIMARY_CODE == sqlite3.SQLITE_BUSY


Open = Callable[[], sqlite3.Connection]
Connect = Callable[[], Awaitable[InlineConnection | ThreadConnection]]


def opener(url: sa.URL, busy_timeout: float, prepare: Callable[[sqlite3.Connection], None]) -> Open:
    """Opens a URL's database; a statement waits `busy_timeout` seconds for a lock."""
    arguments, options = url.get_dialect()().create_connect_args(url)
    # SQLite locks a connection itself. A database in memory has only one, for event loops in any
    # thread: ADK's `Runner.run` starts a thread for each call.
    options["check_same_thread"] = False

    def open_connection() -> sqlite3.Connection:
        # Without an isolation level, no transaction begins but by a statement of ours.
        connection = sqlite3.connect(
            *arguments, **options, timeout=busy_timeout, isolation_level=None
        )
        try:
            prepare(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    return open_connection


def in_threads(open_connection: Open) -> Connect:
    """Connects SQLAlchemy, with a thread for each connection."""

    async def connect() -> ThreadConnection:
        return cast(ThreadConnection, await ThreadConnection(open_connection))

    return connect


def inline(open_connection: Open, busy_timeout: float) -> Connect:
    """Connects SQLAlchemy without threads; the beginning of a transaction waits for a lock."""

    async def connect() -> InlineConnection:
        return InlineConnection(open_connection(), busy_timeout)

    return connect
