"""Rows of turns, and the steps that every change of a session's queue is made of.

The law of the queue: lock the session's row first, then look, in a later statement of the same
transaction. A statement that locks and looks at once sees the rows as they were before it waited
for the lock, and misses what its rival has just committed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from lango.core.turn_states import TurnState, waits_on
from lango.core.turns import End, Event, Failed, GivenUp, Waiting, error_data
from lango.core.values import JsonObject
from lango.errors import TurnNotFoundError
from lango.store.clock import now, seconds
from lango.store.entries import SessionKey
from lango.store.tables import IS_QUEUED, IS_RUNNING, sessions, tool_ledger, turn_events, turns


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn as it stands. Times are epoch seconds."""

    id: str
    session: SessionKey
    session_pk: int
    number: int  # in its session, in the order they were accepted
    state: TurnState
    invocation_id: str
    input: JsonObject
    options: JsonObject
    idempotency_key: str
    attempts: int
    cancel_requested: bool
    answers: str | None  # the call that this turn answers
    waits_for: tuple[str, ...]  # the calls that a person is asked about
    usage: JsonObject | None
    error: JsonObject | None
    last_event: int  # in its log
    trimmed: bool  # its log is no longer kept
    run_at: float | None
    created: float
    started: float | None
    ended: float | None


@dataclass(frozen=True, slots=True)
class Claim:
    """The right to run a turn, or to close it, until another worker takes it over."""

    id: str
    turn: Turn
    epoch: int  # what an append to the session, or to a child of it, must carry
    worker: str
    time_left: float  # seconds
    ran_under: str  # the fingerprint of the agent in the attempt before; "" in the first
    verdict: GivenUp | None = None  # the turn is not run again: it is to be closed like this

    @property
    def resumes(self) -> bool:
        """Whether another attempt came before."""
        return self.turn.attempts > 1 or self.verdict is not None


class Head(NamedTuple):
    """A session that has work for a worker."""

    session_pk: int
    app: str
    lost: bool = False  # a turn runs there whose worker is dead


OnHead = Callable[[AsyncConnection, Head], Awaitable[None]]
"""Called inside the transaction that gives a session work, where a job can be written with it."""


@dataclass(frozen=True, slots=True)
class LockedSession:
    """A session whose queue is ours to change until the transaction ends."""

    pk: int
    key: SessionKey
    epoch: int
    owner: str | None


async def lock_session(
    connection: AsyncConnection, condition: sa.ColumnElement[bool]
) -> LockedSession | None:
    """Lock a session's row; None if there is none."""
    names = (sessions.c.tenant, sessions.c.app_name, sessions.c.user_id, sessions.c.id)
    statement = sa.select(sessions.c.pk, sessions.c.epoch, sessions.c.owner, *names)
    row = (await connection.execute(statement.where(condition).with_for_update())).one_or_none()
    if row is None:
        return None
    key = SessionKey(row.tenant, row.app_name, row.user_id, row.id)
    return LockedSession(row.pk, key, row.epoch, row.owner)


async def lock_session_of(
    connection: AsyncConnection, tenant: str, turn_id: str
) -> tuple[LockedSession, sa.Row[Any]]:
    """Lock the session that a turn belongs to; the turn's row is read once that is done."""
    of_tenant = (turns.c.id == turn_id, sessions.c.tenant == tenant)
    pk = await connection.scalar(
        sa.select(turns.c.session_pk).join(sessions, sessions.c.pk == turns.c.session_pk)
        .where(*of_tenant)
    )  # fmt: skip
    session = None if pk is None else await lock_session(connection, sessions.c.pk == pk)
    row = (await connection.execute(sa.select(turns).where(turns.c.id == turn_id))).one_or_none()
    if session is None or row is None:  # deleted, perhaps while we waited
        raise unknown_turn(turn_id)
    return session, row


def unknown_turn(turn_id: str) -> TurnNotFoundError:
    """The error for a turn that is not there."""
    return TurnNotFoundError(f"Turn {turn_id} not found.")


def turn_of(row: sa.Row[Any], key: SessionKey) -> Turn:
    """A turn from its row."""
    return Turn(
        id=row.id,
        session=key,
        session_pk=row.session_pk,
        number=row.number,
        state=row.state,
        invocation_id=row.invocation_id,
        input=row.input,
        options=row.options,
        idempotency_key=row.idempotency_key,
        attempts=row.attempts,
        cancel_requested=row.cancel_requested,
        answers=row.answers,
        waits_for=tuple(row.waits_for or ()),
        usage=row.usage,
        error=row.error,
        last_event=row.last_event,
        trimmed=row.trimmed is not None,
        run_at=_seconds(row.run_at),
        created=seconds(row.created),
        started=_seconds(row.started),
        ended=_seconds(row.ended),
    )


def _seconds(time: datetime | None) -> float | None:
    return None if time is None else seconds(time)


def is_turn(session_pk: int, number: int) -> sa.ColumnElement[bool]:
    """The condition that names one turn."""
    return sa.and_(turns.c.session_pk == session_pk, turns.c.number == number)


def is_log_of(session_pk: int, number: int) -> sa.ColumnElement[bool]:
    """The condition that names the events of one turn."""
    return sa.and_(turn_events.c.session_pk == session_pk, turn_events.c.turn == number)


async def lock_claimed(connection: AsyncConnection, claim: Claim) -> sa.Row[Any] | None:
    """Lock the row of a claimed turn; None if the claim no longer holds.

    Enough of a fence for what changes no queue: whoever takes the turn over must change this row.
    """
    held = sa.exists().where(
        sessions.c.pk == turns.c.session_pk,
        sessions.c.epoch == turns.c.epoch,
        sessions.c.owner.is_not(None),
    )
    mine = is_turn(claim.turn.session_pk, claim.turn.number)
    statement = sa.select(turns).where(mine, turns.c.claim_id == claim.id, IS_RUNNING, held)
    return (await connection.execute(statement.with_for_update())).one_or_none()


async def turn_row(connection: AsyncConnection, session_pk: int, number: int) -> sa.Row[Any] | None:
    """One turn as it is now."""
    mine = sa.select(turns).where(is_turn(session_pk, number))
    return (await connection.execute(mine)).one_or_none()


async def running_turn(connection: AsyncConnection, session_pk: int) -> sa.Row[Any] | None:
    """The turn that runs in a session: one at most."""
    mine = sa.select(turns).where(turns.c.session_pk == session_pk, IS_RUNNING)
    return (await connection.execute(mine)).one_or_none()


async def first_queued(connection: AsyncConnection, session_pk: int) -> sa.Row[Any] | None:
    """The turn that is next in a session."""
    mine = sa.select(turns).where(turns.c.session_pk == session_pk, IS_QUEUED)
    return (await connection.execute(mine.order_by(turns.c.place).limit(1))).one_or_none()


async def change_turn(connection: AsyncConnection, row: sa.Row[Any], **values: Any) -> sa.Row[Any]:
    """Change a turn; its row as it is then."""
    changed = sa.update(turns).where(is_turn(row.session_pk, row.number)).values(values)
    return (await connection.execute(changed.returning(turns))).one()


async def make_ready(connection: AsyncConnection, session: LockedSession) -> Head | None:
    """Show the first queued turn to the workers; None if there is none, or it was shown before.

    To be called when no turn runs in the session.
    """
    first = await first_queued(connection, session.pk)
    if first is None or first.ready is not None:
        return None
    await change_turn(connection, first, ready=now(connection))
    return Head(session.pk, session.key.app_name)


async def end_turn(
    connection: AsyncConnection,
    row: sa.Row[Any],
    end: End,
    *,
    epoch: int,
    before: Sequence[Event] = (),
    **values: Any,
) -> sa.Row[Any]:
    """Close a turn: its state, its usage and error, and its last events, `end` behind the others.

    The counter is moved by the database: a batch of the log may have moved it since we looked.
    """
    events = [*before, end]
    ended = await change_turn(
        connection,
        row,
        state=end.type,
        ended=now(connection),
        ready=None,
        usage=asdict(end.usage),
        error=error_data(end.error) if isinstance(end, Failed) else None,
        waits_for=list(end.calls) if isinstance(end, Waiting) else None,
        last_event=turns.c.last_event + len(events),
        **values,
    )
    await add_events(connection, ended, events, epoch=epoch)
    return ended


async def add_events(
    connection: AsyncConnection,
    row: sa.Row[Any],
    events: Sequence[Event],
    *,
    epoch: int,
    batch: str | None = None,
) -> None:
    """Write the events that the row's counter has just been moved for."""
    first = row.last_event - len(events) + 1
    written = [
        {
            "session_pk": row.session_pk,
            "turn": row.number,
            "number": number,
            "epoch": epoch,
            "type": event.type,
            "data": event.data(),
            "batch": batch if number == first else None,
        }
        for number, event in enumerate(events, first)
    ]
    if written:
        # The rows beside the statement, not in it: it is then compiled once, not each time.
        await connection.execute(sa.insert(turn_events).values(created=now(connection)), written)


async def answered_calls(
    connection: AsyncConnection, session_pk: int, invocation_id: str
) -> dict[str, str]:
    """The calls of an invocation that turns were handed in for, each with its turn's id.

    A turn may answer several: `answers` holds the first, its input all.
    """
    of_invocation = (turns.c.session_pk == session_pk, turns.c.invocation_id == invocation_id)
    rows = await connection.execute(
        sa.select(turns.c.id, turns.c.answers, turns.c.input).where(
            *of_invocation, turns.c.answers.is_not(None)
        )
    )
    return {
        call: row.id
        for row in rows
        for call in (row.answers, *(one["call_id"] for one in row.input.get("answers", ())))
    }


async def settle_answers(connection: AsyncConnection, session_pk: int, invocation_id: str) -> None:
    """Bring the states of an invocation's waiting turns in line with the answers there are."""
    of_invocation = (turns.c.session_pk == session_pk, turns.c.invocation_id == invocation_id)
    answers = await answered_calls(connection, session_pk, invocation_id)
    waiting = await connection.execute(
        sa.select(turns).where(*of_invocation, turns.c.waits_for.is_not(None))
    )
    for row in waiting.all():
        state = waits_on(row.waits_for, list(answers))
        if state != row.state:
            await change_turn(connection, row, state=state)


async def delete_turns(connection: AsyncConnection, session_pk: int) -> None:
    """Delete the turns of a locked session: who runs one finds the fence closed.

    The turns go first: a write to a log or the ledger that is under way is then waited for.
    """
    for table in (turns, turn_events, tool_ledger):
        await connection.execute(sa.delete(table).where(table.c.session_pk == session_pk))
