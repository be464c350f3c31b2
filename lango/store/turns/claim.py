"""Turns for workers: find sessions with work, claim a turn, close it.

At most one turn runs in a session. Each claim increments the session's epoch (a fencing token):
writes to the session, the log and the ledger with an older epoch fail.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Final

import sqlalchemy as sa

from lango.core.causes import Causes
from lango.core.failpoints import failpoint
from lango.core.ids import new_id
from lango.core.turns.events import Cancelled, End, Event, Failed, GivenUp, InputRequired, Started
from lango.core.turns.states import (
    ANY_LOSSES,
    MAX_ATTEMPTS,
    MIN_ALONE,
)
from lango.core.values import json_text
from lango.errors import AppGoneError, Fenced, TurnTimeoutError, WorkerLostError
from lango.store.db.clock import NOW, ago, seconds
from lango.store.db.database import Database
from lango.store.db.retry import retrying
from lango.store.db.statement import CoreTransaction, Prepared, Row, Transaction
from lango.store.memory.rows import TurnText, is_long, remember, turn_texts
from lango.store.schema.tables import IS_QUEUED, IS_RUNNING, IS_SCHEDULED, turns, workers
from lango.store.sessions.entries import SessionKey
from lango.store.turns import heads as turn_heads
from lango.store.turns import rows as turn_rows
from lango.store.turns import suspects
from lango.store.turns.log import types_and_data
from lango.store.turns.rows import OF_SESSION, Claim, Head, LockedSession, Turn, turn_of
from lango.store.turns.statements import (
    CLAIM,
    CLOSE,
    CLOSE_AND_REMEMBER,
    CLOSE_LOCKS,
    next_row,
    turn_and_rest,
)
from lango.store.turns.usage import read_usage
from lango.store.turns.workers import LiveWorkers, Worker, Workers, find_live_workers

_WHILE_LOCKED: Final = (0.01, 0.02, 0.04)
"""Seconds between tries to lock a session that another transaction has locked, mostly briefly."""
DEAD_AFTER: Final = 5.0
"""Seconds without a heartbeat after which a worker counts as dead."""


@dataclass(frozen=True, slots=True)
class ClosedTurn:
    """A closed turn, and the work that its session has next."""

    turn: Turn
    next: Head | None


_LOST: Final = Prepared(
    sa.select(turns.c.session_pk, turns.c.app)
    .where(
        IS_RUNNING,
        turns.c.worker.not_in(sa.select(workers.c.id).where(workers.c.beat > ago("dead_after"))),
    )
    .limit(sa.bindparam("at_most"))
)
_APP_GONE: Final = (
    "The turn's worker died, and no worker has loaded the app {app!r} since. Start a worker that "
    "has it, and submit the message again."
)
_WORKER_CLAIMS: Final = Prepared(
    sa.select(turns.c.claim_id, turns.c.cancel_requested).where(
        IS_RUNNING, turns.c.worker == sa.bindparam("by_worker")
    )
)
_WORKER_CLAIM: Final = Prepared(
    sa.select(turns.c.session_pk).where(
        IS_RUNNING,
        turns.c.worker == sa.bindparam("by_worker"),
        turns.c.claim_id == sa.bindparam("of_claim"),
    )
)
NO_WORKER: Final = ""
"""The worker id of a turn that was handed back: no living worker has it."""
_DUE: Final = Prepared(
    sa.select(turns.c.session_pk, turns.c.number, turns.c.run_at)
    .where(IS_SCHEDULED, turns.c.run_at <= NOW)
    .order_by(turns.c.run_at)
    .limit(sa.bindparam("at_most"))
)
_SCHEDULED: Final = Prepared(
    sa.select(turns)
    .where(
        OF_SESSION,
        IS_SCHEDULED,
        turns.c.run_at <= sa.bindparam("until"),
        turns.c.number.between(sa.bindparam("first"), sa.bindparam("last")),
    )
    .order_by(turns.c.run_at, turns.c.number)
)
"""A session may have thousands: those around the due ones are read."""
_LAST_POSITION: Final = Prepared(
    sa.select(sa.func.max(turns.c.queue_position).label("position")).where(OF_SESSION, IS_QUEUED)
)


class _Locked:
    """The session's row is locked by another transaction, or deleted."""


class TurnQueue:
    """The queues of all sessions. Every operation may be repeated after a fault."""

    def __init__(self, database: Database, *, dead_after: float = DEAD_AFTER) -> None:
        self.database = database
        self.dead_after = dead_after
        self.from_flow = ""
        """The flow at which the next query for work starts; empty if the last one read them all."""
        self.from_tenant = ""
        """The tenant at which it starts, likewise."""

    async def heads(
        self, apps: Sequence[str], limit: int = 100, most_losses: int = ANY_LOSSES
    ) -> list[Head]:
        """Sessions with work to claim: turns of dead workers first, then the ready ones, fairly.

        Leaves out turns to resume that have lost more workers than `most_losses`.
        """
        if not apps:
            return []

        values = {f"app_{index}": app for index, app in enumerate(apps)}
        dead_after = timedelta(seconds=self.dead_after)
        rows = await self.database.read(
            turn_heads.heads(len(apps), limit, lateral=not self.database.is_sqlite),
            **values,
            dead_after=dead_after,
            most_losses=most_losses,
            from_flow=self.from_flow,
            from_tenant=self.from_tenant,
        )
        self.from_flow = (rows[0].next_flow if rows else None) or ""
        self.from_tenant = (rows[0].next_tenant if rows else None) or ""
        return [
            Head(row.session_pk, row.app, row.tenant, row.id, lost=bool(row.lost), rank=row.rank)
            for row in rows[:limit]
        ]

    async def claim(
        self,
        session_pk: int,
        worker: Worker,
        claim_id: str | None = None,
        *,
        take_over: bool = True,
    ) -> Claim | None:
        """Claim the next turn of a session, or take over the turn of a dead worker.

        A dead worker's turn that gets no further attempt comes with a verdict: close it, do not
        run it. None while another living worker runs a turn there, if this worker has not loaded
        the app or counts as dead itself, or while the session's row is locked; without
        `take_over`, also for a turn that another worker began. A caller that chooses the claim's
        id can find out whether a claim succeeded whose reply was lost.
        """
        # Chosen before the first try: a retry recognises the claim that it made.
        taker = _Taker(worker, claim_id or new_id("clm"))

        # Skip a session whose row stays locked: waiting would occupy a connection.
        for wait in (*_WHILE_LOCKED, None):
            claimed = await self._claim_unless_locked(session_pk, taker, take_over)
            if not isinstance(claimed, _Locked):
                return claimed
            if wait is not None:
                await asyncio.sleep(wait)
        return None

    async def _claim_unless_locked(
        self, session_pk: int, taker: _Taker, take_over: bool
    ) -> Claim | _Locked | None:
        """Claim a turn that has not run before in one statement, any other one step by step."""
        if not self.database.is_sqlite:
            worker = taker.worker
            apps = list(worker.apps), list(worker.apps.values())
            values = session_pk, worker.id, taker.claim_id, self.dead_after, *apps
            records = await retrying(lambda: self.database.fetch(CLAIM, *values))
            if not records:
                return _Locked()
            row, (*key, is_held) = turn_and_rest(records[0])
            if row is not None:
                return _claim(SessionKey(*key), row, taker, None)
            if is_held:
                return None
        return await self.database.transact(self._claim_in_steps, session_pk, taker, take_over)

    async def _claim_in_steps(
        self, transaction: Transaction, session_pk: int, taker: _Taker, take_over: bool
    ) -> Claim | _Locked | None:
        worker = taker.worker
        session = await turn_rows.lock_session(transaction, session_pk, wait=False)
        if session is None:
            return _Locked()
        if session.key.app_name not in worker.apps:
            return None
        # The workers first: of one that has unregistered, we then see what it handed over.
        live_workers = await find_live_workers(
            transaction, self.dead_after, worker.id, session.owner
        )
        running = await turn_rows.running_turn(transaction, session_pk)
        if running is not None and running.claim_id == taker.claim_id:
            return _claim(session.key, running, taker, live_workers)
        if live_workers is None or worker.id not in live_workers.ids:
            return None
        if session.owner in live_workers.ids or not (take_over or running is None):
            return None
        return await _take(transaction, session, running, taker, live_workers)

    async def unloaded(self, limit: int = 1_000) -> list[int]:
        """Sessions whose running turn lost its worker, and whose app no living worker has."""
        living = await Workers(self.database).living(self.dead_after)
        loaded = {app for worker in living for app in worker.apps}
        dead_after = timedelta(seconds=self.dead_after)
        rows = await self.database.read(_LOST, dead_after=dead_after, at_most=limit)
        return [row.session_pk for row in rows if row.app not in loaded]

    async def claim_unloaded(
        self, session_pk: int, worker: Worker, claim_id: str, *, app_gone: bool
    ) -> Claim | None:
        """Claim a dead worker's turn of an app that this worker has not loaded, to close it.

        None unless the turn was cancelled, is over its time limit, has lost too many workers, or
        its app counts as gone (`app_gone`). None, too, while the session's row is locked.
        """
        taker = _Taker(worker, claim_id)

        async def once(transaction: Transaction) -> Claim | None:
            session = await turn_rows.lock_session(transaction, session_pk, wait=False)
            if session is None:
                return None
            live_workers = await find_live_workers(
                transaction, self.dead_after, worker.id, session.owner
            )
            running = await turn_rows.running_turn(transaction, session_pk)
            if running is None or live_workers is None or worker.id not in live_workers.ids:
                return None
            app = session.key.app_name
            taker.verdict = _verdict(running, running.lost_alone, live_workers.clock)
            if taker.verdict is None and app_gone:
                taker.verdict = Failed(AppGoneError(_APP_GONE.format(app=app)))
            if running.claim_id == claim_id:
                return _claim(session.key, running, taker, live_workers)
            if session.owner in live_workers.ids or taker.verdict is None:
                return None
            epoch = session.epoch + 1
            await turn_rows.change_session(transaction, session, epoch=epoch, owner=worker.id)
            claimed = await turn_rows.change_turn(
                transaction, running, epoch=epoch, worker=worker.id, claim_id=claim_id, closing=True
            )
            return _claim(session.key, claimed, taker, live_workers)

        return await self.database.transact(once)

    async def close(
        self,
        claim: Claim,
        end: End,
        events: Sequence[Event] = (),
        causes: Causes | None = None,
        *,
        remembers: bool = False,
    ) -> ClosedTurn:
        """End a turn in one transaction: write state, last events and usage, release the session.

        `causes` are those of tools that failed, by error id. With `remembers`, the messages of a
        turn that completes or waits for input join its user's memory. Fenced if another worker has
        taken the turn over. Idempotent.
        """
        texts = await turn_texts(self.database, claim.turn, end) if remembers else []
        failpoint("turn.closing")
        if not self.database.is_sqlite and not _concerns_answers(claim.turn, end):
            closed = await self._close_at_once(claim, end, events, causes, texts)
            if closed is not None:
                return closed

        async def once(transaction: Transaction) -> ClosedTurn:
            pk, number = claim.turn.session_pk, claim.turn.number
            session = await turn_rows.lock_session(transaction, pk)
            row = await turn_rows.turn_row(transaction, pk, number)
            if session is None or row is None or row.claim_id != claim.id:
                raise Fenced
            if row.state == "running":
                await remember(transaction, pk, texts)
                return await self._close(transaction, session, row, end, events, causes)
            first = await turn_rows.first_queued(transaction, pk)
            if first is None or first.ready is None:
                return ClosedTurn(turn_of(row, session.key), None)
            return ClosedTurn(turn_of(row, session.key), turn_rows.head_of(first, session.key))

        if self.database.is_sqlite and is_long(texts):
            return await self.database.write(
                lambda connection: once(CoreTransaction(connection)),
                session=claim.turn.session,
                is_long=True,
            )
        return await self.database.transact(once, session=claim.turn.session)

    async def _close_at_once(
        self,
        claim: Claim,
        end: End,
        events: Sequence[Event],
        causes: Causes | None,
        texts: Sequence[TurnText],
    ) -> ClosedTurn | None:
        """End a turn in one statement; None if nothing was done: it is lost, or closed already."""
        pk, number, key = claim.turn.session_pk, claim.turn.number, claim.turn.session
        usage = await read_usage(self.database, pk, number)
        last, ending = turn_rows.ending_of(claim.turn, end, usage, events, causes)
        typed_data = types_and_data(last)
        remembered = ([text.seq for text in texts], [text.terms for text in texts])
        records = await self.database.fetch_locked(
            CLOSE_AND_REMEMBER if texts else CLOSE,
            *(pk, number, claim.id, ending["state"]),
            *(_json_or_null(ending[name]) for name in ("usage", "error", "causes")),
            *([kind for kind, _ in typed_data], [json_text(data) for _, data in typed_data]),
            *(remembered if texts else ()),
            locking=CLOSE_LOCKS,
            session=key,
        )
        row, queued = turn_and_rest(records[0]) if records else (None, ())
        if row is None:
            return None
        head = turn_rows.head_of(next_row(queued), key) if any(queued) else None
        return ClosedTurn(turn_of(row, key), head)

    async def renew(self, claim: Claim, verdict: GivenUp, claim_id: str) -> Claim:
        """Renew a claim under a new epoch, so that the same worker can close the turn.

        From here on, writes under the old claim fail. Fenced if another worker has taken the turn
        over. Idempotent for the same `claim_id`.
        """

        async def once(transaction: Transaction) -> Claim:
            pk, number = claim.turn.session_pk, claim.turn.number
            session = await turn_rows.lock_session(transaction, pk)
            row = await turn_rows.turn_row(transaction, pk, number)
            if session is None or row is None or row.state != "running":
                raise Fenced
            if row.claim_id == claim.id and session.epoch == row.epoch:
                epoch = session.epoch + 1
                await turn_rows.change_session(transaction, session, epoch=epoch)
                row = await turn_rows.change_turn(
                    transaction, row, epoch=epoch, claim_id=claim_id, closing=True
                )
            if row.claim_id != claim_id:
                raise Fenced
            turn = turn_of(row, session.key)
            return replace(claim, id=claim_id, turn=turn, epoch=row.epoch, verdict=verdict)

        return await self.database.transact(once, session=claim.turn.session)

    async def hand_back(
        self, worker_id: str, claim_id: str, *, unclosed: bool = False, wait: bool = True
    ) -> bool:
        """Release a claim of a living worker: any worker can then take the turn over.

        It does not count as a lost worker. `unclosed` records that the worker could not close the
        turn. False if the worker does not hold the claim (any more), or without `wait` if the
        session's row is locked.
        """

        async def once(transaction: Transaction) -> bool:
            claimed = await transaction.one(_WORKER_CLAIM, by_worker=worker_id, of_claim=claim_id)
            if claimed is None:
                return False
            session = await turn_rows.lock_session(transaction, claimed.session_pk, wait=wait)
            row = await turn_rows.running_turn(transaction, claimed.session_pk)
            if session is None or row is None or row.claim_id != claim_id:
                return False
            epoch = session.epoch + 1
            await turn_rows.change_session(transaction, session, epoch=epoch, owner=NO_WORKER)
            await turn_rows.change_turn(
                transaction,
                row,
                epoch=epoch,
                worker=NO_WORKER,
                claim_id=None,
                handed_over=row.handed_over + (not row.closing),
                close_failures=row.close_failures + unclosed,
            )
            return True

        return await self.database.transact(once)

    async def _close(
        self,
        transaction: Transaction,
        session: LockedSession,
        row: Row,
        end: End,
        events: Sequence[Event],
        causes: Causes | None,
    ) -> ClosedTurn:
        if session.epoch != row.epoch or session.owner is None:
            raise Fenced
        ended = await turn_rows.end_turn(
            transaction, session, row, end, epoch=row.epoch, before=events, causes=causes
        )
        if isinstance(
            end, InputRequired
        ):  # its calls may be answered already, through an earlier turn
            await turn_rows.settle_answers(transaction, session.pk, row.invocation_id)
            ended = await turn_rows.turn_row(transaction, session.pk, row.number) or ended
        await turn_rows.change_session(transaction, session, owner=None)
        head = await turn_rows.make_ready(transaction, session)
        return ClosedTurn(turn_of(ended, session.key), head)

    async def promote_due(self, limit: int = 100) -> list[Head]:
        """Queue the scheduled turns that are due; returns the sessions that now have work."""
        due: dict[int, list[Row]] = {}
        for row in await self.database.read(_DUE, at_most=limit):
            due.setdefault(row.session_pk, []).append(row)
        heads: list[Head] = []
        for session_pk, rows in due.items():
            heads += await self._promote(session_pk, rows)
        return heads

    async def _promote(self, session_pk: int, rows: Sequence[Row]) -> list[Head]:
        numbers = {row.number for row in rows}
        bounds = {
            "until": max(row.run_at for row in rows),
            "first": min(numbers),
            "last": max(numbers),
        }

        async def once(transaction: Transaction) -> list[Head]:
            session = await turn_rows.lock_session(transaction, session_pk, wait=False)
            if session is None:  # deleted, or locked: then it stays due
                return []
            (last,) = await transaction.all(_LAST_POSITION, of_session=session_pk)
            scheduled = await transaction.all(_SCHEDULED, of_session=session_pk, **bounds)
            due = [row for row in scheduled if row.number in numbers]
            for position, row in enumerate(due, (last.position or 0) + 1):
                await turn_rows.change_turn(
                    transaction, row, state="queued", queue_position=position
                )
            if await turn_rows.running_turn(transaction, session_pk) is not None:
                return []
            head = await turn_rows.make_ready(transaction, session)
            return [] if head is None else [head]

        return await self.database.transact(once)

    async def held_by(self, worker_id: str) -> dict[str, bool]:
        """The claims a worker still holds, each with whether its turn was asked to stop.

        A claim that is not among them is lost: taken over, or its session deleted.
        """
        rows = await self.database.read(_WORKER_CLAIMS, by_worker=worker_id)
        return {str(row.claim_id): row.cancel_requested for row in rows}


@dataclass(slots=True)
class _Taker:
    """The worker that claims, and its verdict on the turn."""

    worker: Worker
    claim_id: str
    verdict: GivenUp | None = None


async def _take(
    transaction: Transaction,
    session: LockedSession,
    running: Row | None,
    taker: _Taker,
    live_workers: LiveWorkers,
) -> Claim | None:
    """Take over a dead worker's turn, to run or to close it, or claim the first queued one."""
    row = running or await turn_rows.first_queued(transaction, session.pk)
    if row is None:
        return None
    losses_alone, taker.verdict = row.lost_alone, None
    if running is not None:
        if session.owner and not running.closing:
            losses_alone += await suspects.is_to_blame(transaction, session.owner, running.id)
        taker.verdict = _verdict(running, losses_alone, live_workers.clock)
        losses = suspects.losses_of(running)
        if taker.verdict is None and not await suspects.may_run(
            transaction, taker.worker.id, losses
        ):
            return None
    epoch = session.epoch + 1
    await turn_rows.change_session(transaction, session, epoch=epoch, owner=taker.worker.id)
    if taker.verdict is None:
        claimed = await _start(transaction, session, row, epoch, taker, lost_alone=losses_alone)
    else:  # no attempt: a close may be interrupted any number of times, and the verdict stays
        claimed = await turn_rows.change_turn(
            transaction,
            row,
            epoch=epoch,
            worker=taker.worker.id,
            claim_id=taker.claim_id,
            closing=True,
            lost_alone=losses_alone,
        )
    return _claim(session.key, claimed, taker, live_workers)


def _concerns_answers(turn: Turn, end: End) -> bool:
    """Whether an end may open or answer calls, which changes other turns of the invocation."""
    return isinstance(end, InputRequired) or (isinstance(end, GivenUp) and turn.answers is not None)


def _json_or_null(value: Any) -> str | None:
    return None if value is None else json_text(value)


def _verdict(row: Row, losses_alone: int, clock: float) -> GivenUp | None:
    """The end of a dead worker's turn; None if it gets another attempt."""
    if row.cancel_requested:
        return Cancelled()
    losses = suspects.losses_of(row)
    if losses >= MAX_ATTEMPTS and losses_alone >= MIN_ALONE:
        return Failed(WorkerLostError(f"The turn lost its worker {losses} times."))
    if row.deadline is not None and seconds(row.deadline) <= clock:
        return Failed(TurnTimeoutError(f"The turn may run for {row.time_limit:g} seconds."))
    return None


async def _start(
    transaction: Transaction,
    session: LockedSession,
    row: Row,
    epoch: int,
    taker: _Taker,
    *,
    lost_alone: int,
) -> Row:
    attempt, agent = row.attempts + 1, taker.worker.apps[session.key.app_name]
    started = await turn_rows.change_turn(
        transaction,
        row,
        state="running",
        ready=None,
        epoch=epoch,
        attempts=attempt,
        worker=taker.worker.id,
        claim_id=taker.claim_id,
        closing=False,
        lost_alone=lost_alone,
        fingerprint=agent,
        ran_under=_ran_under(row, agent),
        started=row.started or session.clock,
        deadline=row.deadline or session.clock + timedelta(seconds=row.time_limit),
        new_events=1,
    )
    events = [Started(attempt)]
    await turn_rows.add_events(transaction, started, events, epoch=epoch, at=session.clock)
    return started


def _ran_under(row: Row, agent: str) -> str:
    """The fingerprint of the last attempt with another agent; if there was none, of the last.

    A worker that sees the agent's change may die before it reports it: the next must see it too.
    """
    is_same = row.fingerprint == agent
    return row.ran_under if is_same and row.ran_under else row.fingerprint


def _claim(key: SessionKey, row: Row, taker: _Taker, live_workers: LiveWorkers | None) -> Claim:
    time_left = row.time_limit
    if live_workers is not None:
        time_left = seconds(row.deadline) - live_workers.clock
    return Claim(
        id=row.claim_id,
        turn=turn_of(row, key),
        epoch=row.epoch,
        worker=taker.worker.id,
        time_left=time_left,
        ran_under=row.ran_under,
        verdict=taker.verdict,
        close_failures=row.close_failures,
        losses=suspects.losses_of(row) - (taker.verdict is None),
        lost_for=live_workers.lost_for if live_workers is not None else None,
    )
