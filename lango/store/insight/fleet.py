"""The open turns and the workers of a database, in one statement over small indexes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import timedelta
from functools import cache
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from lango.core.fleet import MAX_SHOWN, FleetState, OpenTurnsOfApp, RunningTurn
from lango.core.times import moment
from lango.store.db.clock import NOW, ago, seconds
from lango.store.db.database import Database
from lango.store.db.statement import Row
from lango.store.insight.waiting import IS_WAITING
from lango.store.schema.tables import (
    IS_QUEUED,
    IS_RUNNING,
    IS_SCHEDULED,
    sessions,
    turns,
    workers,
)
from lango.store.turns.claim import DEAD_AFTER

_ALIVE, _SILENT, _UNOWNED, _LOST = "alive", "silent", "unowned", "lost"
_COUNT: Final = sa.func.count()
_NO_TIME: Final = sa.cast(sa.null(), turns.c.created.type)
_WORKERS_LOST: Final = turns.c.attempts - 1 - turns.c.handed_over
_is_alive: Final = workers.c.beat > ago("dead_after")
_is_open: Final = turns.c.ended.is_(None)
_is_tenants: Final = turns.c.tenant == sa.bindparam("of_tenant")


async def read_fleet(
    database: Database,
    *,
    by_tenant: bool = False,
    tenant: str | None = None,
    dead_after: float = DEAD_AFTER,
) -> FleetState:
    """The open turns by app and state, of all tenants or of one, and the workers.

    With `by_tenant`, each tenant's turns are a group of their own.
    """
    values: dict[str, Any] = {"dead_after": timedelta(seconds=dead_after)}
    if tenant is not None:
        values["of_tenant"] = tenant
    statement = _fleet(by_tenant, tenant is not None)

    async def once(connection: AsyncConnection) -> Sequence[Row]:
        return (await connection.execute(statement, values)).all()

    rows = await database.read(once)  # not on a lease: with a long queue it takes a while
    by_kind: defaultdict[str, list[Row]] = defaultdict(list)
    for row in rows:
        by_kind[row.kind].append(row)
    (alive,), (silent,) = by_kind.pop(_ALIVE), by_kind.pop(_SILENT)
    unowned, lost = by_kind.pop(_UNOWNED, []), by_kind.pop(_LOST, [])
    return FleetState(
        turns=tuple(group for kind in by_kind for group in _groups(kind, by_kind[kind])),
        unowned=tuple(_groups("running", unowned)),
        most_workers_lost=tuple(_groups("running", lost)),
        alive=alive.count,
        silent=silent.count,
        oldest_heartbeat=_age(alive),
    )


async def read_running(
    database: Database, tenant: str | None = None, *, limit: int = MAX_SHOWN
) -> list[RunningTurn]:
    """The running turns of all tenants, or of one, the oldest first."""
    return await database.read(running_turns, tenant, limit)


async def running_turns(
    connection: AsyncConnection, tenant: str | None = None, limit: int = MAX_SHOWN
) -> list[RunningTurn]:
    """The same, on a connection."""
    statement = (
        sa.select(turns, sessions.c.public_id, sessions.c.user_id)
        .join(sessions, sessions.c.pk == turns.c.session_pk)
        .where(IS_RUNNING, *([] if tenant is None else [turns.c.tenant == tenant]))
        .order_by(turns.c.started, turns.c.id)
        .limit(limit)
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
            tenant=row.tenant,
        )
        for row in await connection.execute(statement)
    ]


@cache
def _fleet(by_tenant: bool, of_tenant: bool) -> sa.CompoundSelect[Any]:
    def turns_in(
        name: str,
        state: sa.ColumnElement[bool],
        oldest: Any = _NO_TIME,
        count: sa.ColumnElement[int] = _COUNT,
    ) -> Any:
        columns: list[Any] = [
            sa.literal_column(f"'{name}'").label("kind"),
            turns.c.app.label("app"),
            (turns.c.tenant if by_tenant else sa.literal_column("''")).label("tenant"),
            count.label("count"),
            oldest.label("oldest"),
            NOW.label("clock"),
        ]
        grouping = (turns.c.app, turns.c.tenant) if by_tenant else (turns.c.app,)
        return sa.select(*columns).where(state).group_by(*grouping)

    def in_queue(state: sa.ColumnElement[bool]) -> sa.ColumnElement[bool]:
        # Of one tenant: lets the planner read the index of that tenant's open turns.
        return sa.and_(state, _is_open, _is_tenants) if of_tenant else state

    is_waiting = sa.and_(IS_WAITING, _is_tenants) if of_tenant else IS_WAITING
    has_no_worker = turns.c.worker.not_in(sa.select(workers.c.id).where(_is_alive))
    return sa.union_all(
        turns_in("queued", in_queue(IS_QUEUED), sa.func.min(turns.c.ready)),
        turns_in("running", in_queue(IS_RUNNING), sa.func.min(turns.c.started)),
        turns_in("scheduled", in_queue(IS_SCHEDULED)),
        turns_in("input_required", is_waiting),
        turns_in(_UNOWNED, sa.and_(in_queue(IS_RUNNING), has_no_worker)),
        turns_in(_LOST, in_queue(IS_RUNNING), count=sa.func.max(_WORKERS_LOST)),
        _workers_that(_ALIVE, _is_alive),
        _workers_that(_SILENT, sa.not_(_is_alive)),
    )


def _workers_that(name: str, condition: sa.ColumnElement[bool]) -> Any:
    columns: list[Any] = [
        sa.literal_column(f"'{name}'"),
        *(sa.literal_column("''"), sa.literal_column("''")),
        sa.func.count(),
        sa.func.min(workers.c.beat),
        NOW,
    ]
    return sa.select(*columns).where(condition)


def _groups(state: str, rows: Sequence[Row]) -> list[OpenTurnsOfApp]:
    return [OpenTurnsOfApp(row.app, state, row.count, _age(row), row.tenant) for row in rows]


def _age(row: Row) -> float | None:
    return None if row.oldest is None else max(seconds(row.clock) - seconds(row.oldest), 0.0)
