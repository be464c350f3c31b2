"""PostgreSQL connections that stay checked out for the hot statements, the last used first.

A check-out from SQLAlchemy's pool costs four times the statement itself, one from asyncpg's own
pool twice (docs/benchmarks.md). All tasks share these connections, and each connection runs one
statement or transaction at a time. The pool still creates and counts them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from lango.store.db.liveness import (
    ANSWERS_WITHIN,
    idle_connections,
    is_in_transaction,
    must_be_probed,
)
from lango.store.db.pooler import local_settings
from lango.store.db.retry import as_lango_errors, is_out_of_step, is_read_only
from lango.store.db.statement import DriverStatement, Prepared, Row, only
from lango.store.db.waiting import FairSemaphore, acquired

_ALONE: Final = 3
"""Connections reserved for single statements, which never wait long for a row."""


class Lease:
    """One leased connection: as a `Transaction`, or for a statement."""

    def __init__(self, connection: AsyncConnection, raw: Any) -> None:
        self.connection = connection
        self.raw = raw  # asyncpg's connection: it publishes no types
        self.harmed = False  # it may be in mid-protocol
        self.is_read_only = False  # and so may be the others
        self.used = time.monotonic()

    async def fetch(self, sql: str, *arguments: Any) -> list[Any]:
        """The records of one statement."""
        return await self._done(self.raw.fetch(sql, *arguments))

    async def fetch_locked(self, sql: str, locking: int, *arguments: Any) -> list[Any]:
        """The records of a statement that runs twice; see `Database.fetch_locked`."""
        lock = False, *arguments[:locking], *(None for _ in arguments[locking:])
        records = await self._done(self.raw.fetchmany(sql, [lock, (True, *arguments)]))
        return [values for looks, *values in records if looks]

    async def execute(self, sql: str) -> None:
        """Run a statement without values."""
        await self._done(self.raw.execute(sql))

    async def all(self, statement: Prepared, **values: Any) -> Sequence[Row]:
        """The rows of a statement."""
        wired = self._wired(statement, values)
        return wired.rows(await self.fetch(wired.sql, *wired.arguments(values)))

    async def one(self, statement: Prepared, **values: Any) -> Row | None:
        """The row of a statement that has one at most."""
        return only(await self.all(statement, **values))

    async def each(self, statement: Prepared, rows: Sequence[Mapping[str, Any]]) -> None:
        """Run a statement for several sets of values at once."""
        wired = self._wired(statement, rows[0])
        arguments = [wired.arguments(values) for values in rows]
        await self._done(self.raw.executemany(wired.sql, arguments))

    def _wired(self, statement: Prepared, values: Mapping[str, Any]) -> DriverStatement:
        return statement.wired(self.connection.dialect, values)

    async def _done(self, work: Awaitable[Any]) -> Any:
        try:
            return await work
        except BaseException as error:
            self.harmed = self.harmed or not _is_refusal(error)
            self.is_read_only = self.is_read_only or is_read_only(error)
            raise


class Leases:
    """At most `limit` connections of an engine; StoreBusyError if none is free in `seconds`."""

    def __init__(self, engine: AsyncEngine, limit: int, seconds: float) -> None:
        self._engine = engine
        self._seconds = seconds
        self._idle: list[Lease] = []
        self._tried = idle_connections(engine)
        self._local = local_settings(engine)
        self._slots = FairSemaphore(limit)
        self._for_transactions = FairSemaphore(max(limit - _ALONE, 1))
        self._closed = False

    @property
    def use(self) -> tuple[int, int]:
        """The connections in use, and the most that may be."""
        return self._slots.used, self._slots.limit

    async def fetch(self, sql: str, *arguments: Any) -> list[Any]:
        """The rows of one statement: one round trip, if it needs no settings of its own."""
        if self._local.missing:
            async with self.transaction() as lease:
                return await lease.fetch(sql, *arguments)
        return await self._alone(Lease.fetch, sql, *arguments)

    async def fetch_locked(self, sql: str, locking: int, *arguments: Any) -> list[Any]:
        """The same for a statement that locks first, and may wait as long as a transaction."""
        if self._local.missing:
            async with self.transaction() as lease:
                return await lease.fetch_locked(sql, locking, *arguments)
        async with acquired(self._for_transactions, self._seconds):
            return await self._alone(Lease.fetch_locked, sql, locking, *arguments)

    async def _alone(self, fetch: Callable[..., Awaitable[list[Any]]], *values: Any) -> list[Any]:
        """Run one statement outside a transaction."""
        async with acquired(self._slots, self._seconds):
            lease = await self._take()
            try:
                return await fetch(lease, *values)
            finally:
                await self._give_back(lease)

    async def find(self, statement: Prepared, values: Mapping[str, Any]) -> list[Row]:
        """The rows of one prepared statement: one round trip."""
        wired = statement.wired(self._engine.dialect, values)
        return wired.rows(await self.fetch(wired.sql, *wired.arguments(values)))

    @asynccontextmanager
    async def transaction(self) -> AsyncGenerator[Lease]:
        """A transaction that commits at the end."""
        transactions = acquired(self._for_transactions, self._seconds)
        async with transactions, acquired(self._slots, self._seconds):
            lease = await self._take()
            try:
                await lease.execute(self._local.begin)
                try:
                    yield lease
                except BaseException:
                    if not lease.harmed:
                        await lease.execute("rollback")
                    raise
                await lease.execute("commit")
            finally:
                await self._give_back(lease)

    async def _give_back(self, lease: Lease) -> None:
        if lease.is_read_only:
            idle, self._idle = self._idle, []
            await self._drop_for_good((lease, *idle))
        elif lease.harmed or is_in_transaction(lease.raw):
            await self._drop(lease)
        elif self._closed:  # while this one was in use
            await lease.connection.close()
        else:
            lease.used = time.monotonic()
            self._idle.append(lease)

    async def _take(self) -> Lease:
        while self._idle:
            lease = self._idle.pop()
            if await self._is_usable(lease):
                return lease
        with as_lango_errors():
            connection = await self._engine.connect()
        return Lease(connection, (await connection.get_raw_connection()).driver_connection)

    async def _is_usable(self, lease: Lease) -> bool:
        """Whether an idle lease can be used; else it is dropped."""
        usable = False
        try:
            usable = not lease.raw.is_closed() and await self._tried.answers(lease.raw, lease.used)
        finally:
            if not usable:
                await self._drop(lease)
        return usable

    async def _drop(self, lease: Lease) -> None:
        """Drop a connection that may be in mid-protocol, even while the task is being cancelled."""
        lease.raw.terminate()
        await asyncio.shield(_invalidate(lease.connection))

    async def _drop_for_good(self, leases: Sequence[Lease]) -> None:
        """Drop unused connections; a pooler closes those that end in a transaction."""
        if self._local.is_pooled:
            await asyncio.gather(*map(_begin_or_not, leases))
        for lease in leases:
            await self._drop(lease)

    async def close(self) -> None:
        """Return all connections to the pool; those in use are closed when they are released."""
        self._closed = True
        while self._idle:
            lease = self._idle.pop()
            if must_be_probed(lease.used):
                lease.raw.terminate()  # a graceful close could wait for an answer
            await lease.connection.close()


async def _invalidate(connection: AsyncConnection) -> None:
    await connection.invalidate()
    await connection.close()


async def _begin_or_not(lease: Lease) -> None:
    with suppress(Exception):
        async with asyncio.timeout(ANSWERS_WITHIN):
            await lease.raw.execute("begin")


def _is_refusal(error: BaseException) -> bool:
    """Whether the server refused the statement, and the connection itself can still be used."""
    state = getattr(error, "sqlstate", None)
    if state is None or str(state).startswith(("08", "57")):
        return False
    return not (is_read_only(error) or is_out_of_step(error))
