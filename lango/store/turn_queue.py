"""Turns for those who run them: which sessions have work, claim a turn, close it.

At most one turn runs in a session. The claim raises the session's epoch, and from then on only who
knows the new one can write to the session, the log and the ledger.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from lango.core.ids import new_id
from lango.core.turn_states import MAX_ATTEMPTS
from lango.core.turns import Cancelled, End, Event, Failed, GivenUp, Started, Waiting
from lango.errors import Fenced, TurnTimeoutError, WorkerLostError
from lango.store import turn_rows
from lango.store.clock import now, seconds
from lango.store.database import Database
from lango.store.tables import IS_QUEUED, IS_RUNNING, IS_SCHEDULED, sessions, turns, workers
from lango.store.turn_rows import Claim, Head, LockedSession, OnHead, Turn, turn_of
from lango.store.workers import Roll, Worker, beat_since, call_roll

DEAD_AFTER: Final = 5.0
"""Seconds without a heartbeat after which a worker counts as dead."""


@dataclass(frozen=True, slots=True)
class Closed:
    """A turn that is over, and whether its session has more to do."""

    turn: Turn
    more: bool


class TurnQueue:
    """The queues of all sessions. Every operation may be repeated after a fault."""

    def __init__(
        self,
        database: Database,
        *,
        dead_after: float = DEAD_AFTER,
        on_head: OnHead | None = None,
    ) -> None:
        self.database = database
        self.dead_after = dead_after
        self._on_head = on_head

    async def heads(self, apps: Sequence[str], limit: int = 100) -> list[Head]:
        """Sessions with work that nobody does: turns of dead workers first, then by the wait."""
        if not apps:
            return []

        async def once(connection: AsyncConnection) -> list[Head]:
            lost = await connection.execute(_lost(connection, apps, self.dead_after, limit))
            found = [Head(row.session_pk, row.app, lost=True) for row in lost]
            ready = await connection.execute(_ready(apps, limit - len(found)))
            return found + [Head(row.session_pk, row.app) for row in ready]

        return await self.database.look(once)

    async def claim(self, session_pk: int, worker: Worker) -> Claim | None:
        """Take the turn that is next in a session, or go on with the one of a dead worker.

        A dead worker's turn that is not worth another attempt comes with a verdict: it is to be
        closed, not run. Nothing is taken while another worker that lives runs a turn there, or if
        this one has not loaded the app or counts as dead itself.
        """
        taker = _Taker(worker, new_id("clm"))  # before the first try: a retry knows its own work

        async def once(connection: AsyncConnection) -> Claim | None:
            session = await turn_rows.lock_session(connection, sessions.c.pk == session_pk)
            if session is None or session.key.app_name not in worker.apps:
                return None
            running = await turn_rows.running_turn(connection, session_pk)
            roll = await call_roll(connection, self.dead_after, worker.id, session.owner)
            if running is not None and running.claim_id == taker.claim_id:
                return _claim(session, running, taker, roll)
            if roll is None or worker.id not in roll.living:
                return None
            if session.owner is not None and session.owner in roll.living:
                return None
            return await _take(connection, session, running, taker, roll)

        return await self.database.change(once)

    async def close(self, claim: Claim, end: End, events: Sequence[Event] = ()) -> Closed:
        """End a turn in one transaction: state, last events, usage, and the session given back.

        Fenced if another worker has taken the turn over. Repeated, it changes nothing.
        """

        async def once(connection: AsyncConnection) -> Closed:
            pk, number = claim.turn.session_pk, claim.turn.number
            session = await turn_rows.lock_session(connection, sessions.c.pk == pk)
            row = await turn_rows.turn_row(connection, pk, number)
            if session is None or row is None or row.claim_id != claim.id:
                raise Fenced
            if row.state == "running":
                return await self._close(connection, session, row, end, events)
            first = await turn_rows.first_queued(connection, pk)
            more = first is not None and first.ready is not None
            return Closed(turn_of(row, session.key), more)

        return await self.database.change(once)

    async def _close(
        self,
        connection: AsyncConnection,
        session: LockedSession,
        row: sa.Row[Any],
        end: End,
        events: Sequence[Event],
    ) -> Closed:
        if session.epoch != row.epoch or session.owner is None:
            raise Fenced
        ended = await turn_rows.end_turn(connection, row, end, epoch=row.epoch, before=events)
        if isinstance(end, Waiting):  # for what may be answered already, through an earlier turn
            await turn_rows.settle_answers(connection, session.pk, row.invocation_id)
            ended = await turn_rows.turn_row(connection, session.pk, row.number) or ended
        mine = sa.update(sessions).where(sessions.c.pk == session.pk)
        await connection.execute(mine.values(owner=None))
        head = await self._show_next(connection, session)
        return Closed(turn_of(ended, session.key), head is not None)

    async def promote_due(self, limit: int = 100) -> list[Head]:
        """Queue the scheduled turns whose time has come; the sessions that have work by it."""

        async def due(connection: AsyncConnection) -> dict[int, list[int]]:
            is_due = (IS_SCHEDULED, turns.c.run_at <= now(connection))
            which = sa.select(turns.c.session_pk, turns.c.number).where(*is_due)
            found: dict[int, list[int]] = {}
            for row in await connection.execute(which.order_by(turns.c.run_at).limit(limit)):
                found.setdefault(row.session_pk, []).append(row.number)
            return found

        heads: list[Head] = []
        for session_pk, numbers in (await self.database.look(due)).items():
            heads += await self._promote(session_pk, numbers)
        return heads

    async def _promote(self, session_pk: int, numbers: Sequence[int]) -> list[Head]:
        mine = turns.c.session_pk == session_pk

        async def once(connection: AsyncConnection) -> list[Head]:
            session = await turn_rows.lock_session(connection, sessions.c.pk == session_pk)
            if session is None:
                return []
            last = sa.select(sa.func.max(turns.c.place)).where(mine, IS_QUEUED)
            behind = await connection.scalar(last) or 0
            which = sa.select(turns).where(mine, turns.c.number.in_(numbers), IS_SCHEDULED)
            due = await connection.execute(which.order_by(turns.c.run_at, turns.c.number))
            for place, row in enumerate(due.all(), behind + 1):
                await turn_rows.change_turn(connection, row, state="queued", place=place)
            if await turn_rows.running_turn(connection, session_pk) is not None:
                return []
            head = await self._show_next(connection, session)
            return [] if head is None else [head]

        return await self.database.change(once)

    async def _show_next(self, connection: AsyncConnection, session: LockedSession) -> Head | None:
        head = await turn_rows.make_ready(connection, session)
        if head is not None and self._on_head is not None:
            await self._on_head(connection, head)
        return head

    async def held_by(self, worker_id: str) -> dict[str, bool]:
        """The claims a worker still holds, each with whether its turn should stop.

        A claim that is not among them is lost: taken over, or its session deleted.
        """

        async def once(connection: AsyncConnection) -> dict[str, bool]:
            mine = sa.select(turns.c.claim_id, turns.c.cancel_requested)
            rows = await connection.execute(mine.where(IS_RUNNING, turns.c.worker == worker_id))
            return {str(row.claim_id): row.cancel_requested for row in rows}

        return await self.database.look(once)


@dataclass(slots=True)
class _Taker:
    """Who claims, and what it has found so far."""

    worker: Worker
    claim_id: str
    verdict: GivenUp | None = None


async def _take(
    connection: AsyncConnection,
    session: LockedSession,
    running: sa.Row[Any] | None,
    taker: _Taker,
    roll: Roll,
) -> Claim | None:
    """Go on with a dead worker's turn, to run or to close it, or take what is next."""
    row = running or await turn_rows.first_queued(connection, session.pk)
    if row is None:
        return None
    epoch = session.epoch + 1
    mine = sa.update(sessions).where(sessions.c.pk == session.pk)
    await connection.execute(mine.values(epoch=epoch, owner=taker.worker.id))
    taker.verdict = None if running is None else _hopeless(running, roll.clock)
    if taker.verdict is None:
        held = await _start(connection, session, row, epoch, taker)
    else:  # no attempt: it may be cut off any number of times, and the verdict stays
        held = await turn_rows.change_turn(
            connection, row, epoch=epoch, worker=taker.worker.id, claim_id=taker.claim_id
        )
    return _claim(session, held, taker, roll)


def _hopeless(row: sa.Row[Any], clock: float) -> GivenUp | None:
    """How a dead worker's turn is to end without another attempt, if it is."""
    if row.cancel_requested:
        return Cancelled()
    if row.attempts >= MAX_ATTEMPTS:
        return Failed(WorkerLostError(f"The turn lost its worker {row.attempts} times."))
    if row.deadline is not None and seconds(row.deadline) <= clock:
        return Failed(TurnTimeoutError(f"The turn may run for {row.time_limit:g} seconds."))
    return None


async def _start(
    connection: AsyncConnection,
    session: LockedSession,
    row: sa.Row[Any],
    epoch: int,
    taker: _Taker,
) -> sa.Row[Any]:
    moment = now(connection)
    attempt = row.attempts + 1
    started = await turn_rows.change_turn(
        connection,
        row,
        state="running",
        ready=None,
        epoch=epoch,
        attempts=attempt,
        worker=taker.worker.id,
        claim_id=taker.claim_id,
        fingerprint=taker.worker.apps[session.key.app_name],
        ran_under=row.fingerprint,
        started=row.started or moment,
        deadline=row.deadline or moment + timedelta(seconds=row.time_limit),
        last_event=turns.c.last_event + 1,
    )
    await turn_rows.add_events(connection, started, [Started(attempt)], epoch=epoch)
    return started


def _claim(session: LockedSession, row: sa.Row[Any], taker: _Taker, roll: Roll | None) -> Claim:
    return Claim(
        id=row.claim_id,
        turn=turn_of(row, session.key),
        epoch=row.epoch,
        worker=taker.worker.id,
        time_left=row.time_limit if roll is None else seconds(row.deadline) - roll.clock,
        ran_under=row.ran_under,
        verdict=taker.verdict,
    )


def _lost(
    connection: AsyncConnection, apps: Sequence[str], dead_after: float, limit: int
) -> sa.Select[Any, Any]:
    """Turns that run without a living worker: a walk over what runs, which is never much."""
    living = sa.select(workers.c.id).where(beat_since(connection, dead_after))
    return (
        sa.select(turns.c.session_pk, turns.c.app)
        .where(IS_RUNNING, turns.c.app.in_(apps), turns.c.worker.not_in(living))
        .limit(limit)
    )


def _ready(apps: Sequence[str], limit: int) -> sa.Select[Any]:
    """Turns that could run, those that wait longest first: as many steps as rows wanted.

    One walk per app, as an index walked for several at once gives no common order.
    """
    each = [
        sa.select(turns.c.session_pk, turns.c.app, turns.c.ready)
        .where(turns.c.ready.is_not(None), turns.c.app == app)
        .order_by(turns.c.ready, turns.c.session_pk)
        .limit(limit)
        .subquery()
        for app in apps
    ]
    found = sa.union_all(*(sa.select(walk) for walk in each)).subquery()
    return sa.select(found).order_by(found.c.ready, found.c.session_pk).limit(limit)
