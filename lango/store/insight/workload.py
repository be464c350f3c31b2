"""The workload of a tenant, read from the indexes of open turns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from lango.core.insight import MAX_RUNNING, LiveWorker, OpenTurns, RunningTurn, Workload
from lango.core.times import moment, moment_or_none
from lango.store.db.clock import seconds
from lango.store.db.database import Database
from lango.store.schema.tables import IS_QUEUED, IS_RUNNING, IS_SCHEDULED, sessions, turns, workers
from lango.store.turns.claim import DEAD_AFTER
from lango.store.turns.workers import beat_since


async def read_workload(database: Database, tenant: str) -> Workload:
    """A tenant's open turns, and the living workers."""

    async def once(connection: AsyncConnection) -> Workload:
        running = await _running(connection, tenant)
        by_worker = Counter(dict(await _running_by_worker(connection, tenant)))
        rows = await connection.execute(
            sa.select(workers)
            .where(beat_since(connection, DEAD_AFTER))
            .order_by(workers.c.started, workers.c.id)
        )
        return Workload(
            turns=await _open(connection, tenant),
            oldest_queued=await _oldest(connection, tenant),
            running=tuple(running),
            workers=tuple(
                LiveWorker(
                    id=row.id,
                    apps=tuple(sorted(row.apps)),
                    started=moment(seconds(row.started)),
                    seen=moment(seconds(row.beat)),
                    running=by_worker[row.id],
                )
                for row in rows
            ),
        )

    return await database.read(once)


async def abandoned_turns(database: Database, apps: Collection[str]) -> dict[str, int]:
    """Queued and running turns by app, for apps not in `apps` that no living worker has."""

    async def once(connection: AsyncConnection) -> dict[str, int]:
        living = await connection.scalars(
            sa.select(workers.c.apps).where(beat_since(connection, DEAD_AFTER))
        )
        known = {*apps, *(app for loaded in living for app in loaded)}
        waiting = sa.select(turns.c.app, sa.func.count()).where(sa.or_(IS_QUEUED, IS_RUNNING))
        rows = await connection.execute(waiting.group_by(turns.c.app).order_by(turns.c.app))
        return {app: count for app, count in rows if app not in known}

    return await database.read(once)


def _of(tenant: str, *columns: Any) -> sa.Select[*tuple[Any, ...]]:
    joined = sa.select(*columns).join_from(turns, sessions, sessions.c.pk == turns.c.session_pk)
    return joined.where(sessions.c.tenant == tenant)


async def _open(connection: AsyncConnection, tenant: str) -> OpenTurns:
    """Each count from the index of the turns in that state."""
    # Matches the partial index on `waits_for`: only turns that have it can be waiting.
    is_waiting = sa.and_(turns.c.waits_for.is_not(None), turns.c.state == "input_required")
    states = {
        "scheduled": IS_SCHEDULED,
        "queued": IS_QUEUED,
        "running": IS_RUNNING,
        "input_required": is_waiting,
    }
    counts = {
        name: await connection.scalar(_of(tenant, sa.func.count()).where(state)) or 0
        for name, state in states.items()
    }
    return OpenTurns(**counts)


async def _oldest(connection: AsyncConnection, tenant: str) -> Any:
    since = await connection.scalar(_of(tenant, sa.func.min(turns.c.created)).where(IS_QUEUED))
    return moment_or_none(None if since is None else seconds(since))


async def _running(connection: AsyncConnection, tenant: str) -> list[RunningTurn]:
    statement = _of(tenant, turns, sessions.c.public_id, sessions.c.user_id).where(IS_RUNNING)
    rows = await connection.execute(
        statement.order_by(turns.c.started, turns.c.id).limit(MAX_RUNNING)
    )
    return [
        RunningTurn(
            turn=row.id,
            session=row.public_id,
            app=row.app,
            user=row.user_id,
            worker=row.worker or "",
            started=moment(seconds(row.started)),
            attempts=row.attempts,
        )
        for row in rows
    ]


async def _running_by_worker(connection: AsyncConnection, tenant: str) -> list[tuple[str, int]]:
    counted = _of(tenant, turns.c.worker, sa.func.count()).where(IS_RUNNING)
    rows = await connection.execute(counted.group_by(turns.c.worker))
    return [(str(worker), count) for worker, count in rows]
