"""Prepared statements on a SQLite file, on the event loop's own thread and without SQLAlchemy."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import sqlalchemy as sa

from lango.store.db.sqlite.driver import InlineConnection, Open
from lango.store.db.statement import DriverStatement, Prepared, Row, only


class PreparedStatements:
    """Runs prepared statements; it needs a second connection only while a transaction waits."""

    def __init__(self, open_connection: Open, busy_timeout: float, dialect: sa.Dialect) -> None:
        self._open = open_connection
        self._busy_timeout = busy_timeout
        self._dialect = dialect
        self._idle: list[InlineConnection] = []
        self._is_closed = False

    def find(self, statement: Prepared, values: Mapping[str, Any]) -> Sequence[Row]:
        """The rows of one statement."""
        connection = self._take()
        try:
            return SqliteTransaction(connection, self._dialect).find(statement, values)
        finally:
            self._give_back(connection)

    def transaction(self) -> AbstractAsyncContextManager[SqliteTransaction]:
        """A transaction that commits at the end; it takes the write lock at once."""
        return self._begun("BEGIN IMMEDIATE")

    def snapshot(self) -> AbstractAsyncContextManager[SqliteTransaction]:
        """A transaction whose statements all see the same, and only read."""
        return self._begun("BEGIN")

    @asynccontextmanager
    async def _begun(self, begin: str) -> AsyncGenerator[SqliteTransaction]:
        connection = self._take()
        try:
            await connection.begin(begin)
            yield SqliteTransaction(connection, self._dialect)
            await connection.commit()
        except BaseException:
            await connection.rollback()
            raise
        finally:
            self._give_back(connection)

    def _take(self) -> InlineConnection:
        if self._idle:
            return self._idle.pop()
        return InlineConnection(self._open(), self._busy_timeout)

    def _give_back(self, connection: InlineConnection) -> None:
        if self._is_closed:  # while this one was in use
            connection.stop()
        else:
            self._idle.append(connection)

    def close(self) -> None:
        """Close all connections; those in use follow when they are released."""
        self._is_closed = True
        while self._idle:
            self._idle.pop().stop()


class SqliteTransaction:
    """A transaction, for prepared statements."""

    def __init__(self, connection: InlineConnection, dialect: sa.Dialect) -> None:
        self._connection = connection
        self._dialect = dialect

    def find(self, statement: Prepared, values: Mapping[str, Any]) -> Sequence[Row]:
        """The rows of a statement."""
        wired = self._wired(statement, values)
        return wired.rows(self._connection.fetch(wired.sql, wired.arguments(values)))

    async def all(self, statement: Prepared, **values: Any) -> Sequence[Row]:
        """The rows of a statement."""
        return self.find(statement, values)

    async def one(self, statement: Prepared, **values: Any) -> Row | None:
        """The row of a statement that has one at most."""
        return only(self.find(statement, values))

    async def each(self, statement: Prepared, rows: Sequence[Mapping[str, Any]]) -> None:
        """Run a statement for several sets of values."""
        wired = self._wired(statement, rows[0])
        self._connection.execute_many(wired.sql, [wired.arguments(values) for values in rows])

    def _wired(self, statement: Prepared, values: Mapping[str, Any]) -> DriverStatement:
        return statement.wired(self._dialect, values)
