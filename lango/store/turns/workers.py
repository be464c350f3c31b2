"""Workers, and which of them are alive, by their heartbeats on the database's clock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from lango.store.db.clock import NOW, now, seconds
from lango.store.db.database import Database
from lango.store.db.statement import Prepared, Transaction
from lango.store.db.upserts import upsert
from lango.store.hold import is_released, require_released
from lango.store.schema.tables import IS_RUNNING, turns, workers


@dataclass(frozen=True, slots=True)
class Worker:
    """A process that runs turns. Its id is new with each start."""

    id: str
    apps: Mapping[str, str]  # the agents it has loaded: name and fingerprint
    host: str = ""
    pid: int = 0


class Workers:
    """The workers of one database."""

    def __init__(self, database: Database) -> None:
        self.database = database

    async def register(self, worker: Worker) -> None:
        """Register a worker, alive from now, or update one that is registered already.

        DatabaseHeldError while the database is held.
        """
        values: dict[str, Any] = {"apps": dict(worker.apps), "host": worker.host, "pid": worker.pid}

        async def once(connection: AsyncConnection) -> None:
            await require_released(connection)
            values.update(beat=now(connection), blamed=None)
            row = {**values, "id": worker.id, "started": values["beat"]}
            new = upsert(connection, workers).values(row)
            statement = new.on_conflict_do_update(index_elements=[workers.c.id], set_=values)
            await connection.execute(statement)

        await self.database.write(once)

    async def beat(self, worker_id: str) -> bool:
        """Record a heartbeat; False if the worker must register again, or the database is held."""
        return bool(await self.database.write(_BEAT, worker_id=worker_id, blamed=None))

    async def remove(self, worker_id: str, handing_over: Sequence[str] = ()) -> None:
        """Unregister a worker that ends; others can take over its turns at once.

        For the claims in `handing_over`, it does not count as a lost worker.
        """
        is_handed_over = (
            IS_RUNNING,
            turns.c.worker == worker_id,
            turns.c.claim_id.in_(handing_over),
            sa.not_(turns.c.closing),  # closing a turn is no attempt
        )

        async def once(connection: AsyncConnection) -> None:
            result = await connection.execute(sa.delete(workers).where(workers.c.id == worker_id))
            if handing_over and result.rowcount:  # else an earlier try has done it
                counted = sa.update(turns).where(*is_handed_over)
                await connection.execute(counted.values(handed_over=turns.c.handed_over + 1))

        await self.database.write(once)

    async def living(self, dead_after: float) -> list[Worker]:
        """The workers with a heartbeat within `dead_after` seconds, the oldest first."""

        async def once(connection: AsyncConnection) -> list[Worker]:
            alive = sa.select(workers).where(beat_since(connection, dead_after))
            rows = await connection.execute(alive.order_by(workers.c.started, workers.c.id))
            return [Worker(row.id, row.apps, row.host, row.pid) for row in rows]

        return await self.database.read(once)

    async def prune(self, silent_for: float) -> int:
        """Unregister workers without a heartbeat in `silent_for` seconds; returns how many."""

        async def once(connection: AsyncConnection) -> int:
            is_dead = sa.not_(beat_since(connection, silent_for))
            return (await connection.execute(sa.delete(workers).where(is_dead))).rowcount

        return await self.database.write(once)


def beat_since(connection: AsyncConnection, dead_after: float) -> sa.ColumnElement[bool]:
    """The condition that a worker is alive."""
    return workers.c.beat > now(connection) - timedelta(seconds=dead_after)


@dataclass(frozen=True, slots=True)
class LiveWorkers:
    """Which of two workers are alive, and the database's time of that query."""

    ids: frozenset[str]
    clock: float
    lost_for: float | None = None
    """Seconds since the last heartbeat of the other one; None if it lives or is unregistered."""


_BEATING: Final = (
    sa.update(workers)
    .where(workers.c.id == sa.bindparam("worker_id"))
    .values(beat=NOW)
    .returning(workers.c.id)
)
_BEAT: Final = Prepared(
    _BEATING.where(is_released()), on_sqlite=_BEATING.where(is_released(on_sqlite=True))
)
_HEARTBEATS: Final = Prepared(
    sa.select(workers.c.id, workers.c.beat, NOW.label("clock")).where(
        sa.or_(workers.c.id == sa.bindparam("one"), workers.c.id == sa.bindparam("other"))
    )
)


async def find_live_workers(
    transaction: Transaction, dead_after: float, worker_id: str, other_id: str | None
) -> LiveWorkers | None:
    """Query whether two workers are alive; None if neither is registered."""
    rows = await transaction.all(_HEARTBEATS, one=worker_id, other=other_id)
    if not rows:
        return None
    clock = seconds(rows[0].clock)
    living = {row.id for row in rows if seconds(row.beat) > clock - dead_after}
    silences = [clock - seconds(row.beat) for row in rows if row.id == other_id]
    lost_for = silences[0] if silences and other_id not in living else None
    return LiveWorkers(frozenset(living), clock, lost_for)
