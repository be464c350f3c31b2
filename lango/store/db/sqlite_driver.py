"""aiosqlite with one trip to a connection's thread for each statement.

SQLAlchemy makes a cursor, executes, fetches and closes it. With aiosqlite's own cursor each of
these is a trip: a switch of threads there, and a pass of the event loop back. On a busy loop a pass
takes milliseconds, and a transaction keeps the only writer's lock for all of its trips. Here one
function in the thread executes a statement, fetches its rows and closes it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple, Self, cast

import aiosqlite
import sqlalchemy as sa


class _Result(NamedTuple):
    """The result of a statement whose cursor is closed."""

    rows: list[Any]
    description: Any  # as PEP 249 has it; None if the statement returns no rows
    rowcount: int
    lastrowid: int | None


_NOTHING = _Result([], None, -1, None)


class SqliteCursor:
    """The part of a cursor that SQLAlchemy uses; it holds no statement open."""

    arraysize = 1

    def __init__(self, connection: Connection) -> None:
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
        self._result = await self._connection.run(_execute, sql, parameters)

    async def executemany(self, sql: str, parameters: Sequence[Sequence[Any]]) -> None:
        """Execute one statement for each set of values."""
        self._result = await self._connection.run(_execute_many, sql, parameters)

    async def fetchall(self) -> list[Any]:
        """The rows, which are here already."""
        return self._result.rows

    async def close(self) -> None:
        """Do nothing: no statement is open."""


class Connection(aiosqlite.Connection):
    """A connection whose cursors make one trip for each statement."""

    def __init__(self, connect: Callable[[], sqlite3.Connection]) -> None:
        super().__init__(connect, iter_chunk_size=64)
        self._thread.daemon = True  # a process that ends does not wait for it

    def cursor(self) -> SqliteCursor:  # pyright: ignore[reportIncompatibleMethodOverride]
        """A cursor for SQLAlchemy."""
        return SqliteCursor(self)

    async def run(self, work: Callable[..., _Result], sql: str, parameters: Any) -> _Result:
        """Work on the connection in its thread."""
        in_thread = cast("Callable[..., Awaitable[_Result]]", getattr(self, "_execute"))  # noqa: B009 - it has no types
        return await in_thread(work, self._conn, sql, parameters)


def connector(url: sa.URL, busy_timeout: float) -> Callable[[], Awaitable[Connection]]:
    """Connects to a URL's database; a statement waits `busy_timeout` seconds for a lock."""
    arguments, options = url.get_dialect()().create_connect_args(url)

    def connect() -> sqlite3.Connection:
        return sqlite3.connect(*arguments, **options, timeout=busy_timeout)

    async def open_connection() -> Connection:
        connection = Connection(connect)
        await connection
        return connection

    return open_connection


def _execute(connection: sqlite3.Connection, sql: str, parameters: Sequence[Any]) -> _Result:
    return _closed(connection.execute(sql, parameters))


def _execute_many(
    connection: sqlite3.Connection, sql: str, parameters: Sequence[Sequence[Any]]
) -> _Result:
    return _closed(connection.executemany(sql, parameters))


def _closed(cursor: sqlite3.Cursor) -> _Result:
    try:
        rows = cursor.fetchall() if cursor.description else []
        return _Result(rows, cursor.description, cursor.rowcount, cursor.lastrowid)
    finally:
        cursor.close()
