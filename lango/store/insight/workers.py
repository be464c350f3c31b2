"""The registered workers, with the turns that they run."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from lango.core.fleet import RegisteredWorker
from lango.core.times import moment
from lango.store.db.clock import NOW, seconds
from lango.store.db.database import Database
from lango.store.db.statement import Row
from lango.store.schema.tables import IS_RUNNING, turns, workers
from lango.store.turns.claim import DEAD_AFTER


async def read_workers(
    database: Database, tenant: str | None = None, *, dead_after: float = DEAD_AFTER
) -> list[RegisteredWorker]:
    """The workers, the oldest first; `running` counts the tenant's turns, or those of all."""
    return await database.read(registered_workers, tenant, dead_after)


async def registered_workers(
    connection: AsyncConnection, tenant: str | None = None, dead_after: float = DEAD_AFTER
) -> list[RegisteredWorker]:
    """The same, on a connection."""
    statement = sa.select(workers, _running(tenant), NOW.label("clock"))
    rows = await connection.execute(statement.order_by(workers.c.started, workers.c.id))
    return [_worker(row, dead_after) for row in rows]


def _running(tenant: str | None) -> sa.Label[Any]:
    counted = sa.select(sa.func.count()).where(IS_RUNNING, turns.c.worker == workers.c.id)
    if tenant is not None:
        counted = counted.where(turns.c.tenant == tenant)
    return counted.scalar_subquery().label("running")


def _worker(row: Row, dead_after: float) -> RegisteredWorker:
    silence = max(seconds(row.clock) - seconds(row.beat), 0.0)
    return RegisteredWorker(
        id=row.id,
        state="alive" if silence < dead_after else "silent",
        host=row.host,
        pid=row.pid,
        versions=row.apps,
        started=moment(seconds(row.started)),
        seen=moment(seconds(row.beat)),
        silence=silence,
        running=row.running,
    )
