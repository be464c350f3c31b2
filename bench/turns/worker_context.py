"""The store, service and worker of one process, and queues filled in bulk."""

from __future__ import annotations

import warnings
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from bench.events import APP, APPENDED_BYTES, USER, text
from bench.pg import connect
from bench.store.ours import Lango, copied
from bench.turns.apps import APPS, Notes
from lango.adk.apps.preload import skip_a2a
from lango.store.schema import tables
from lango.store.sessions.store import SqlSessionStore
from lango.turns.engine.choose import DATABASE, engine_of
from lango.turns.service import Turns
from lango.turns.worker import TurnWorker, WorkerOptions

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from bench.pg import Connection
    from lango.store.turns.rows import Turn

MESSAGE: Final = text(APPENDED_BYTES)

# Turns as the service itself wrote one, but for their names and queue positions.
_NEW_TURN: Final = {
    "session_pk": "s.pk",
    "number": "l.number + n",
    "queue_position": "l.number + n",
    "id": "'turn_' || s.pk || '.' || l.number + n",
    "invocation_id": "'turn_' || s.pk || '.' || l.number + n",
    "idempotency_key": "'turn_' || s.pk || '.' || l.number + n",
    "state": "'queued'",
    "ready": "case when n = 1 then now() end",
    "last_event": "0",  # `accepted` is not copied: no benchmark reads these logs
    "created": "now()",
    "usage": "null",
    "ended": "null",
}
_COLUMNS, _VALUES = copied(tables.turns, _NEW_TURN)
_FILL: Final = f"""
insert into turns ({_COLUMNS})
select {_VALUES}
from sessions s
cross join lateral (
    select coalesce(max(number), 0) as number from turns where session_pk = s.pk
) l
cross join generate_series(1, $3::bigint) n
join turns t on t.id = $1
where s.id = any($2::text[])
order by n, s.pk
"""  # noqa: S608 (names of our own columns)


@dataclass(frozen=True, slots=True)
class BenchSettings:
    """The database, the app and the options of measured turns."""

    url: str
    app: str = "nothing"  # of APPS
    concurrency: int = 100
    dead_after: float = 5.0
    event_retention_seconds: float = WorkerOptions().event_retention_seconds
    engine: str = DATABASE
    bus: str = DATABASE


class WorkerContext:
    """The store, the service and the worker of a process."""

    def __init__(self, settings: BenchSettings) -> None:
        self.notes = Notes()
        self.store = SqlSessionStore(settings.url)
        self.engine = engine_of(
            settings.engine, settings.bus, self.store.database, dead_after=settings.dead_after
        )
        self.turns = Turns(self.store, self.engine)
        self.app = APPS[settings.app](self.store, self.notes)
        options = WorkerOptions(
            concurrency=settings.concurrency,
            event_retention_seconds=settings.event_retention_seconds,
        )
        self.worker = TurnWorker(self.store, self.engine, {APP: self.app}, options)

    async def submit(self, session: str) -> Turn:
        """Submit a message."""
        return await self.turns.submit(APP, MESSAGE, user=USER, session=session)


@asynccontextmanager
async def worker_context(settings: BenchSettings) -> AsyncGenerator[WorkerContext]:
    """A context whose worker is not started."""
    # ADK warns in every process about the feature that durable turns are built on.
    warnings.filterwarnings("ignore", r"\[EXPERIMENTAL\]", UserWarning)
    skip_a2a()  # as every serving process does: counted, it would hide the cost of a turn
    made = WorkerContext(settings)
    async with made.store, made.engine:
        yield made


class Queue:
    """The turns of one database, accessed by plain SQL."""

    def __init__(self, settings: BenchSettings, connection: Connection) -> None:
        self.settings = settings
        self.connection = connection
        self._lango = Lango(settings.url)

    async def close(self) -> None:
        """Close the store that creates sessions."""
        await self._lango.close()

    async def sessions(self, count: int) -> Sequence[str]:
        """New sessions, by id."""
        return await self._lango.sessions(count)

    async def fill(self, sessions: Sequence[str], each: int) -> None:
        """Add `each` turns to each of these idle sessions."""
        async with worker_context(self.settings) as context:
            (session,) = await self.sessions(1)
            template = await context.submit(session)
            await context.turns.cancel(template.id)
        await self.connection.execute(_FILL, template.id, sessions, each)

    async def settle(self) -> None:
        """Update the server's table statistics."""
        await self.connection.execute("vacuum analyze")

    async def row(self, statement: str, *values: object) -> tuple[Any, ...]:
        """One row."""
        return tuple((await self.connection.fetch(statement, *values))[0].values())


@asynccontextmanager
async def queue(settings: BenchSettings) -> AsyncGenerator[Queue]:
    """The queue of a database, whose tables are created first."""
    await Lango.prepare(settings.url)
    connection = await connect(settings.url)
    made = Queue(settings, connection)
    try:
        yield made
    finally:
        await made.close()
        await connection.close()
