"""A picture of all work on a database, for its operators."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from lango.core.fleet import FailedTurn, FleetState, RegisteredWorker, RunningTurn
from lango.store.db.database import Database
from lango.store.hold import read_hold
from lango.store.insight.failures import read_failures
from lango.store.insight.fleet import read_fleet, read_running
from lango.store.insight.workers import read_workers

FAILED_WITHIN: Final = timedelta(days=1)
"""How long a failure counts as recent."""


@dataclass(frozen=True, slots=True)
class OperationsPicture:
    """What runs, waits and has failed, of all tenants or of one."""

    at: datetime
    tenant: str | None
    fleet: FleetState  # by app and tenant
    workers: tuple[RegisteredWorker, ...]
    running: tuple[RunningTurn, ...]
    failures: tuple[FailedTurn, ...]  # the last ones, within FAILED_WITHIN
    held: str  # why no turn may run; empty if they may


async def read_operations(
    database: Database, tenant: str | None = None, *, limit: int
) -> OperationsPicture:
    """What happens now; `limit` rows of running and of failed turns."""
    at = datetime.now(UTC)
    hold = await read_hold(database)
    return OperationsPicture(
        at=at,
        tenant=tenant,
        fleet=await read_fleet(database, by_tenant=True, tenant=tenant),
        workers=tuple(await read_workers(database, tenant)),
        running=tuple(await read_running(database, tenant, limit=limit)),
        failures=tuple(
            await read_failures(database, at - FAILED_WITHIN, tenant=tenant, limit=limit)
        ),
        held="" if hold is None else str(hold),
    )
