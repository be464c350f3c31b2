"""A client of the turn queue, with operations that only tests need."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import sqlalchemy as sa

from lango.store.schema.tables import IS_SCHEDULED, sessions, turns, workers
from lango.store.sessions.entries import Entry
from lango.store.sessions.store import SqlSessionStore
from lango.store.turns.claim import TurnQueue
from lango.store.turns.ledger import ToolLedger
from lango.store.turns.log import TurnLog
from lango.store.turns.submit import SqlTurnStore
from lango.store.turns.workers import Workers

LONG_AGO: Final = datetime(2020, 1, 1, tzinfo=UTC)
DEAD_AFTER: Final = 36_000.0  # only the test decides when a worker counts as dead


@dataclass(frozen=True, slots=True)
class Rows:
    """A snapshot of the tables: turns, and the queue, epoch and owner of each session."""

    turns: dict[str, tuple[Any, ...]]
    queues: dict[int, list[str]]
    epochs: dict[int, int]
    owners: dict[int, str]
    ready: set[str]


class QueueClient:
    """The stores of one process on a database."""

    def __init__(self, url: str) -> None:
        self.sessions = SqlSessionStore(url)
        database = self.sessions.database
        self.turns = SqlTurnStore(database)
        self.queue = TurnQueue(database, dead_after=DEAD_AFTER)
        self.log = TurnLog(database)
        self.ledger = ToolLedger(database)
        self.workers = Workers(database)

    async def _execute(self, statement: sa.Executable) -> None:
        async with self.sessions.database.begin() as connection:
            await connection.execute(statement)

    async def freeze(self, worker_id: str) -> None:
        """Set a worker's last heartbeat to long ago."""
        statement = sa.update(workers).where(workers.c.id == worker_id)
        await self._execute(statement.values(beat=LONG_AGO))

    async def expire(self, turn_id: str) -> None:
        """Set a turn's deadline to long ago."""
        statement = sa.update(turns).where(turns.c.id == turn_id, turns.c.deadline.is_not(None))
        await self._execute(statement.values(deadline=LONG_AGO))

    async def make_due(self, tenants: list[str]) -> None:
        """Make all scheduled turns of some tenants due."""
        session_pks = sa.select(sessions.c.pk).where(sessions.c.tenant.in_(tenants))
        due = sa.update(turns).where(turns.c.session_pk.in_(session_pks), IS_SCHEDULED)
        await self._execute(due.values(run_at=LONG_AGO))

    async def rows(self, tenants: list[str]) -> Rows:
        """The rows of some tenants."""
        session_columns = (sessions.c.pk, sessions.c.epoch.label("now"), sessions.c.owner)
        joined = sessions.outerjoin(turns, turns.c.session_pk == sessions.c.pk)
        columns = ("id", "state", "number", "attempts", "cancel_requested", "last_event", "ready")
        turn_columns = (turns.c[name] for name in columns)
        statement = sa.select(*session_columns, *turn_columns).select_from(joined)
        statement = statement.where(sessions.c.tenant.in_(tenants)).order_by(turns.c.queue_position)
        found = Rows({}, {}, {}, {}, set())
        async with self.sessions.database.snapshot() as connection:
            for row in await connection.execute(statement):
                found.epochs[row.pk] = row.now
                if row.owner is not None:
                    found.owners[row.pk] = row.owner
                if row.id is None:
                    continue
                counts = (row.number, row.attempts, row.cancel_requested, row.last_event)
                found.turns[row.id] = (row.state, *counts)
                if row.ready is not None:
                    found.ready.add(row.id)
                if row.state == "queued":
                    found.queues.setdefault(row.pk, []).append(row.id)
        return found


def entry(event_id: str) -> Entry:
    """A message to append."""
    return Entry(
        event_id=event_id,
        invocation_id="turn",
        author="user",
        role="user",
        content="hi",
        tool_calls=None,
        event=None,
        changes=None,
        tokens=1,
        timestamp=1.76e9,
        counts=True,
    )
