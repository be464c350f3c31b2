"""The workload of a tenant, read from the indexes of open turns."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import fields
from datetime import datetime

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from lango.core.fleet import OpenTurnsOfApp, RegisteredWorker
from lango.core.insight import LiveWorker, OpenTurns, OpenTurnsByApp, Workload
from lango.core.times import moment_or_none
from lango.store.db.clock import seconds
from lango.store.db.database import Database
from lango.store.hold import hold_of
from lango.store.insight.fleet import read_fleet, running_turns
from lango.store.insight.workers import registered_workers
from lango.store.schema.tables import IS_QUEUED, IS_RUNNING, turns


async def read_workload(database: Database, tenant: str) -> Workload:
    """A tenant's open turns, and the living workers."""
    fleet = await read_fleet(database, tenant=tenant)

    async def once(connection: AsyncConnection) -> Workload:
        registered = await registered_workers(connection, tenant)
        return Workload(
            turns=OpenTurns(**{state.name: fleet.count(state.name) for state in fields(OpenTurns)}),
            oldest_queued=await _oldest(connection, tenant),
            running=tuple(await running_turns(connection, tenant)),
            workers=tuple(_live(registered)),
            apps=tuple(_by_app(fleet.turns)),
            held=await hold_of(connection) is not None,
        )

    return await database.read(once)


async def abandoned_turns(database: Database, apps: Collection[str]) -> dict[str, int]:
    """Queued and running turns by app, for apps not in `apps` that no living worker has."""

    async def once(connection: AsyncConnection) -> dict[str, int]:
        living = _live(await registered_workers(connection))
        served_apps = {*apps, *(app for worker in living for app in worker.apps)}
        waiting = sa.select(turns.c.app, sa.func.count()).where(sa.or_(IS_QUEUED, IS_RUNNING))
        rows = await connection.execute(waiting.group_by(turns.c.app).order_by(turns.c.app))
        return {app: count for app, count in rows if app not in served_apps}

    return await database.read(once)


def _live(workers: Iterable[RegisteredWorker]) -> Iterator[LiveWorker]:
    for worker in workers:
        if worker.state == "alive":
            yield LiveWorker(
                id=worker.id,
                apps=tuple(sorted(worker.versions)),
                started=worker.started,
                seen=worker.seen,
                running=worker.running,
            )


def _by_app(groups: Iterable[OpenTurnsOfApp]) -> Iterator[OpenTurnsByApp]:
    by_app: defaultdict[str, dict[str, OpenTurnsOfApp]] = defaultdict(dict)
    for group in groups:
        by_app[group.app][group.state] = group
    for app, states in sorted(by_app.items()):
        queued = states.get("queued")
        counts = {state: group.count for state, group in states.items()}
        yield OpenTurnsByApp(**counts, app=app, queued_for=queued.oldest if queued else None)


async def _oldest(connection: AsyncConnection, tenant: str) -> datetime | None:
    of_tenant = IS_QUEUED, turns.c.ended.is_(None), turns.c.tenant == tenant
    since = await connection.scalar(sa.select(sa.func.min(turns.c.created)).where(*of_tenant))
    return moment_or_none(None if since is None else seconds(since))
