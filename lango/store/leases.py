"""PostgreSQL connections kept at hand for the hot statements, the last used first.

A check-out of SQLAlchemy's pool costs four times the statement itself, one of asyncpg's own pool
twice (docs/benchmarks.md). These stay checked out between statements and are shared by all tasks,
one statement at a time each; the pool still makes and counts them.
"""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine


class _Lease(NamedTuple):
    connection: AsyncConnection
    raw: Any  # asyncpg's connection: it publishes no types


class Leases:
    """At most `limit` connections of an engine."""

    def __init__(self, engine: AsyncEngine, limit: int) -> None:
        self._engine = engine
        self._idle: list[_Lease] = []
        self._slots = asyncio.Semaphore(limit)
        self._closed = False

    async def fetch(self, sql: str, *arguments: Any) -> list[Any]:
        """The rows of one statement: one round trip."""
        async with self._slots:
            lease = await self._take()
            try:
                rows = await lease.raw.fetch(sql, *arguments)
            except BaseException as error:
                if _is_unharmed(error):
                    await self._keep(lease)
                else:
                    await self._drop(lease)
                raise
            await self._keep(lease)
            return rows

    async def _keep(self, lease: _Lease) -> None:
        if self._closed:  # while this statement ran
            await lease.connection.close()
        else:
            self._idle.append(lease)

    async def _take(self) -> _Lease:
        while self._idle:
            lease = self._idle.pop()
            if not lease.raw.is_closed():
                return lease
            await self._drop(lease)
        connection = await self._engine.connect()
        return _Lease(connection, (await connection.get_raw_connection()).driver_connection)

    async def _drop(self, lease: _Lease) -> None:
        """Give up a connection that may be in mid-protocol, even while being cancelled."""
        lease.raw.terminate()
        await asyncio.shield(_invalidate(lease.connection))

    async def close(self) -> None:
        """Give all back to the pool; those in use follow when their statement ends."""
        self._closed = True
        while self._idle:
            await self._idle.pop().connection.close()


async def _invalidate(connection: AsyncConnection) -> None:
    await connection.invalidate()
    await connection.close()


def _is_unharmed(error: BaseException) -> bool:
    """Whether the server refused the statement: the connection itself is as good as before."""
    state = getattr(error, "sqlstate", None)
    return state is not None and not str(state).startswith(("08", "57"))
