"""A SQLite file: who writes to it when, and when a write has reached the disk."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from lango.store.db.engines import close_engine
from lango.store.db.sqlite.driver import inline
from lango.store.db.sqlite.engine import create_inline_engine, inline_opener
from lango.store.db.sqlite.log import WriteAheadLog
from lango.store.db.sqlite.prepared import PreparedStatements, SqliteTransaction
from lango.store.db.statement import Prepared, Row
from lango.store.db.waiting import BriefLock, acquired


class SqliteFile:
    """Reads and writes a file: what is short, on the event loop's own thread.

    A write returns once the disk has it. It waits `pool_timeout` seconds for other tasks of this
    process, and `busy_timeout` for other processes.
    """

    def __init__(
        self, url: sa.URL, log: WriteAheadLog, pool_timeout: float, busy_timeout: float
    ) -> None:
        self._log = log
        self._pool_timeout = pool_timeout
        # Our writers wait for each other here, where a release wakes them at once: at the file they
        # would have to ask again and again.
        self._one_writer = BriefLock()
        opened = inline_opener(url, log)
        self._engine = create_inline_engine(url, inline(opened, busy_timeout))
        self._idle: list[AsyncConnection] = []
        self._prepared = PreparedStatements(opened, busy_timeout, self._engine.dialect)
        self._is_closed = False

    def find(self, statement: Prepared, values: Mapping[str, Any]) -> Sequence[Row]:
        """The rows of one prepared statement that only reads."""
        return self._prepared.find(statement, values)

    def snapshot(self) -> AbstractAsyncContextManager[SqliteTransaction]:
        """A transaction of prepared statements that all see the same, and only read."""
        return self._prepared.snapshot()

    @asynccontextmanager
    async def transaction(self) -> AsyncGenerator[SqliteTransaction]:
        """A transaction of prepared statements, which commits at the end."""
        async with self._writing(), self._prepared.transaction() as transaction:
            yield transaction
        await self._log.sync_with_others()

    @asynccontextmanager
    async def begin_short(self) -> AsyncGenerator[AsyncConnection]:
        """A transaction for any short statements, which commits at the end."""
        async with self._writing(), self._begin() as connection:
            yield connection
        await self._log.sync_with_others()

    @asynccontextmanager
    async def _begin(self) -> AsyncGenerator[AsyncConnection]:
        """A transaction on a connection that stays open: to close one takes passes of the loop."""
        connection = self._idle.pop() if self._idle else await self._engine.connect()
        try:
            async with connection.begin():
                yield connection
        finally:
            if self._is_closed or connection.in_transaction():  # it could not be rolled back
                await connection.close()
            else:
                self._idle.append(connection)

    @asynccontextmanager
    async def begin_long(self, engine: AsyncEngine) -> AsyncGenerator[AsyncConnection]:
        """The same for statements that may take long, on an engine whose statements have threads.

        It waits for no reader's connection: the pool of `engine` has one more.
        """
        async with self._writing(), engine.begin() as connection:
            yield connection
        await self._log.sync_with_others()

    @asynccontextmanager
    async def _writing(self) -> AsyncGenerator[None]:
        """Inside, no other task of this process writes to the file."""
        async with acquired(self._one_writer, self._pool_timeout):
            await self._log.copy_if_long()
            self._log.check()
            with self._log.watched():
                yield

    async def close(self) -> None:
        """Close the connections, after the copy of the log that is under way."""
        self._is_closed = True
        await self._log.wait_for_copy()
        while self._idle:
            await self._idle.pop().close()
        await close_engine(self._engine)
        self._prepared.close()
        self._log.close()
