"""Rows of turns, and the steps that every change of a session's queue is made of.

The rule of the queue: lock the session's row first, then read, in a later statement of the same
transaction. A statement that locks and reads at once sees the rows as they were before it waited
for the lock, and misses what the other transaction has just committed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any, Final, NamedTuple

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from lango.core.causes import MAX_CAUSES, Causes, cause_of
from lango.core.messages.streams import Usage
from lango.core.turns.events import End, Event, Failed, GivenUp, InputRequired, error_data
from lango.core.turns.states import TurnState, waits_on
from lango.core.values import JsonObject
from lango.errors import Fenced, LangoError, TurnNotFoundError
from lango.store.db.clock import NOW, seconds, seconds_or_none
from lango.store.db.database import Database
from lango.store.db.statement import Prepared, Row, Transaction, only
from lango.store.schema.tables import (
    IS_QUEUED,
    IS_RUNNING,
    messages,
    sessions,
    tool_ledger,
    turn_events,
    turns,
)
from lango.store.sessions.entries import SessionKey, SessionRef
from lango.store.turns.usage import close_calls
from lango.telemetry.tracing.ids import trace_id_in


@dataclass(frozen=True, slots=True)
class Turn:
    """The current state of a turn. Times are epoch seconds."""

    id: str
    session: SessionKey
    session_pk: int
    number: int  # in its session, in the order of acceptance
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
    causes: Mapping[str, JsonObject]  # of its failures, by error id; for the operator alone
    last_event: int  # in its log
    trimmed: bool  # its log was deleted
    run_at: float | None
    time_limit: float  # seconds it may run, over all attempts
    key_id: str | None  # the API key, or token's user, whose limits it counts towards
    cost_limit: float | None  # US dollars of that caller's day
    created: float
    started: float | None
    ended: float | None
    traceparent: str | None = None  # W3C Trace Context; None if it was accepted without traces

    @property
    def trace_id(self) -> str | None:
        """The id of its trace, by which a trace viewer finds it."""
        return trace_id_in(self.traceparent)

    @property
    def head(self) -> Head:
        """The work that its session has when this turn is next."""
        key = self.session
        return Head(self.session_pk, key.app_name, key.tenant, self.id, run_at=self.run_at)


@dataclass(frozen=True, slots=True)
class Claim:
    """The right to run a turn, or to close it, until another worker takes it over."""

    id: str
    turn: Turn
    epoch: int  # a fencing token: appends to the session, or to a child of it, must carry it
    worker: str
    time_left: float  # seconds
    ran_under: str  # the last different fingerprint of its attempts, else the same; "" in the first
    verdict: GivenUp | None = None  # the end to close the turn with, instead of running it
    losses: int = 0  # workers that the turn has lost before
    close_failures: int = 0  # workers that ran it to its end and could not close it
    lost_for: float | None = None
    """Seconds from the lost worker's last heartbeat to this claim; None if none was lost."""

    @property
    def ref(self) -> SessionRef:
        """The turn's session by its primary key: after a delete, its name may be reused."""
        return SessionRef(self.turn.session, self.turn.session_pk)

    @property
    def resumes(self) -> bool:
        """Whether there was an earlier attempt."""
        return self.turn.attempts > 1 or self.verdict is not None


class Head(NamedTuple):
    """A session that has work for a worker."""

    session_pk: int
    app: str
    tenant: str
    turn: str  # the id of the turn that is next, or that was lost
    lost: bool = False  # a turn runs there whose worker is dead
    rank: int = 0  # rank among its tenant's turns: after the running and the chosen ones
    run_at: float | None = None  # epoch seconds; not before


@dataclass(frozen=True, slots=True)
class LockedSession:
    """A session whose row this transaction has locked: only it may change the queue."""

    pk: int
    public_id: str
    key: SessionKey
    epoch: int
    owner: str | None
    clock: datetime  # the database's time; on PostgreSQL, when the transaction began


def is_turn(session_pk: Any, number: Any) -> sa.ColumnElement[bool]:
    """The condition that names one turn."""
    return sa.and_(turns.c.session_pk == session_pk, turns.c.number == number)


def is_log_of(session_pk: Any, number: Any) -> sa.ColumnElement[bool]:
    """The condition that names the events of one turn."""
    return sa.and_(turn_events.c.session_pk == session_pk, turn_events.c.turn == number)


# No bind parameter has a column's name: that would mean the new value of the column.
OF_SESSION: Final = turns.c.session_pk == sa.bindparam("of_session")
"""The turns of the session in the bind parameter `of_session`."""
_THIS_TURN: Final = is_turn(sa.bindparam("of_session"), sa.bindparam("of_number"))
_OF_INVOCATION: Final = sa.and_(OF_SESSION, turns.c.invocation_id == sa.bindparam("invocation"))
_KEY: Final = (sessions.c.tenant, sessions.c.app_name, sessions.c.user_id, sessions.c.id)
_LOCK: Final = sa.select(
    *(sessions.c.pk, sessions.c.public_id, sessions.c.epoch, sessions.c.owner),
    *_KEY,
    NOW.label("clock"),
).with_for_update()
_LOCK_BY_PK: Final = Prepared(_LOCK.where(sessions.c.pk == sa.bindparam("of_session")))
_LOCK_UNLESS_LOCKED: Final = Prepared(
    _LOCK.with_for_update(skip_locked=True).where(sessions.c.pk == sa.bindparam("of_session"))
)
_LOCK_BY_KEY: Final = Prepared(
    _LOCK.where(*(column == sa.bindparam(column.name) for column in _KEY))
)
_CHANGE_SESSION: Final = Prepared(
    sa.update(sessions).where(sessions.c.pk == sa.bindparam("of_session"))
)
_TURN_BY_ID: Final = Prepared(sa.select(turns).where(turns.c.id == sa.bindparam("turn_id")))
_TURN_OF_TENANT: Final = Prepared(
    sa.select(turns, *_KEY[:-1], sessions.c.id.label("session_id"))
    .join(sessions, sessions.c.pk == turns.c.session_pk)
    .where(turns.c.id == sa.bindparam("turn_id"), sessions.c.tenant == sa.bindparam("tenant"))
)
_TURN: Final = Prepared(sa.select(turns).where(_THIS_TURN))
_RUNNING: Final = Prepared(sa.select(turns).where(OF_SESSION, IS_RUNNING))
_FIRST_QUEUED: Final = Prepared(
    sa.select(turns).where(OF_SESSION, IS_QUEUED).order_by(turns.c.queue_position).limit(1)
)
_IS_HELD: Final = sa.exists().where(
    sessions.c.pk == turns.c.session_pk,
    sessions.c.epoch == turns.c.epoch,
    sessions.c.owner.is_not(None),
)
IS_CLAIMED: Final = sa.and_(
    _THIS_TURN, turns.c.claim_id == sa.bindparam("claim"), IS_RUNNING, _IS_HELD
)
"""The turn of `of_session` and `of_number`, while `claim` still holds it."""
_LOCK_CLAIMED: Final = Prepared(
    sa.select(turns, NOW.label("clock")).where(IS_CLAIMED).with_for_update()
)
_CLAIMED: Final = Prepared(sa.select(turns.c.number).where(IS_CLAIMED))
_CHANGE_TURN: Final = Prepared(
    sa.update(turns)
    .where(_THIS_TURN)
    .values(last_event=turns.c.last_event + sa.bindparam("new_events"))
    .returning(turns)
)
_ADD_EVENT: Final = Prepared(sa.insert(turn_events))
_ANSWERS: Final = Prepared(
    sa.select(turns.c.id, turns.c.answers, turns.c.input).where(
        _OF_INVOCATION, turns.c.answers.is_not(None)
    )
)
_ANSWER: Final = Prepared(
    sa.select(turns).where(_OF_INVOCATION, turns.c.answers == sa.bindparam("call"))
)
_OPEN: Final = Prepared(
    sa.select(turns.c.number).where(
        _OF_INVOCATION, sa.or_(IS_RUNNING, sa.and_(IS_QUEUED, turns.c.answers.is_not(None)))
    )
)
_MESSAGE: Final = Prepared(
    sa.select(messages.c.seq).where(
        messages.c.session_pk == sa.bindparam("of_session"),
        messages.c.event_id == sa.bindparam("event"),
    )
)
_LAST_TEXT: Final = Prepared(
    sa.select(messages.c.content)
    .where(
        messages.c.session_pk == sa.bindparam("of_session"),
        messages.c.invocation_id == sa.bindparam("invocation"),
        *(messages.c.role == "assistant", messages.c.content != "", messages.c.undone_by.is_(None)),
    )
    .order_by(messages.c.seq.desc())
    .limit(1)
)
_WAITING: Final = Prepared(sa.select(turns).where(_OF_INVOCATION, turns.c.waits_for.is_not(None)))


def user_event_id(turn_id: str) -> str:
    """The id of the event that holds a turn's submitted input."""
    return f"{turn_id}.user"


async def lock_session(
    transaction: Transaction, pk: int, *, wait: bool = True
) -> LockedSession | None:
    """Lock a session's row; None if there is none, or without `wait` if it is locked already."""
    lock = _LOCK_BY_PK if wait else _LOCK_UNLESS_LOCKED
    return _locked(await transaction.one(lock, of_session=pk))


async def lock_session_by_key(transaction: Transaction, key: SessionKey) -> LockedSession | None:
    """The same for a session that is known by its key."""
    return _locked(await transaction.one(_LOCK_BY_KEY, **key.of_row))


def _locked(row: Row | None) -> LockedSession | None:
    if row is None:
        return None
    key = SessionKey(row.tenant, row.app_name, row.user_id, row.id)
    return LockedSession(row.pk, row.public_id, key, row.epoch, row.owner, row.clock)


async def change_session(transaction: Transaction, session: LockedSession, **values: Any) -> None:
    """Change a locked session."""
    await transaction.all(_CHANGE_SESSION, of_session=session.pk, **values)


async def lock_session_of(transaction: Transaction, turn: Turn) -> tuple[LockedSession, Row]:
    """Lock the session of a turn, then read the turn's row again."""
    session = await lock_session(transaction, turn.session_pk)
    row = await transaction.one(_TURN_BY_ID, turn_id=turn.id)
    if session is None or row is None:  # deleted meanwhile
        raise unknown_turn(turn.id)
    return session, row


def unknown_turn(turn_id: str) -> TurnNotFoundError:
    """The error for a turn that does not exist."""
    return TurnNotFoundError(f"Turn {turn_id} not found.")


def turn_of(row: Row, key: SessionKey) -> Turn:
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
        causes=row.causes or {},
        last_event=row.last_event,
        trimmed=row.trimmed is not None,
        run_at=seconds_or_none(row.run_at),
        time_limit=row.time_limit,
        key_id=row.key_id,
        cost_limit=row.cost_limit,
        created=seconds(row.created),
        started=seconds_or_none(row.started),
        ended=seconds_or_none(row.ended),
        traceparent=row.traceparent,
    )


async def lock_claimed(transaction: Transaction, claim: Claim) -> Row | None:
    """Lock the row of a claimed turn; None if the claim no longer holds.

    That fences writes that change no queue: a worker that takes the turn over updates this row.
    """
    turn = claim.turn
    return await transaction.one(
        _LOCK_CLAIMED, of_session=turn.session_pk, of_number=turn.number, claim=claim.id
    )


async def still_held(database: Database, claim: Claim) -> bool:
    """Whether the claim holds at this moment, read without a lock."""
    parameters = {"of_session": claim.turn.session_pk, "of_number": claim.turn.number}
    return bool(await database.read(_CLAIMED, **parameters, claim=claim.id))


async def hold(transaction: Transaction, claim: Claim) -> Row:
    """Prevent a takeover of the turn until the transaction ends; Fenced if the claim is lost."""
    row = await lock_claimed(transaction, claim)
    if row is None:
        raise Fenced
    return row


async def turn_row(transaction: Transaction, session_pk: int, number: int) -> Row | None:
    """The current row of a turn; None if there is none."""
    return await transaction.one(_TURN, of_session=session_pk, of_number=number)


async def running_turn(transaction: Transaction, session_pk: int) -> Row | None:
    """The turn that runs in a session: one at most."""
    return await transaction.one(_RUNNING, of_session=session_pk)


async def first_queued(transaction: Transaction, session_pk: int) -> Row | None:
    """The first queued turn of a session."""
    return await transaction.one(_FIRST_QUEUED, of_session=session_pk)


async def change_turn(
    transaction: Transaction, row: Row, *, new_events: int = 0, **values: Any
) -> Row:
    """Change a turn, and return its new row.

    The database increments the log's counter: a batch may have changed it since we read the row.
    """
    parameters = {"of_session": row.session_pk, "of_number": row.number}
    changed = await transaction.one(_CHANGE_TURN, **parameters, new_events=new_events, **values)
    if changed is None:
        raise unknown_turn(row.id)
    return changed


def head_of(row: Row, key: SessionKey) -> Head:
    """The work that a session has when this turn is next."""
    return Head(
        row.session_pk, key.app_name, key.tenant, row.id, run_at=seconds_or_none(row.run_at)
    )


async def make_ready(transaction: Transaction, session: LockedSession) -> Head | None:
    """Make the first queued turn claimable; None if there is none, or it is claimable already.

    Call it only when no turn runs in the session.
    """
    first = await first_queued(transaction, session.pk)
    if first is None or first.ready is not None:
        return None
    await change_turn(transaction, first, ready=session.clock)
    return head_of(first, session.key)


async def end_turn(
    transaction: Transaction,
    session: LockedSession,
    row: Row,
    end: End,
    *,
    epoch: int,
    before: Sequence[Event] = (),
    causes: Causes | None = None,
    **values: Any,
) -> Row:
    """Close a turn: write its state, usage and error, and its last events, `end` after the others.

    Its usage comes from the records of its model calls, where they are kept.

    If a turn fails or is cancelled before its answer was stored, its call can be answered again.
    `causes` are those of tools that failed, by their error ids.
    """
    usage = await close_calls(transaction, session.pk, row.number, session.clock)
    events, ending = ending_of(row, end, usage, before, causes)
    gives_back = isinstance(end, GivenUp) and not await _stored_answer(transaction, row)
    if gives_back:
        values["answers"] = None
    ended = await change_turn(
        transaction,
        row,
        new_events=len(events),
        ended=session.clock,
        ready=None,
        waits_for=list(end.calls) if isinstance(end, InputRequired) else None,
        **ending,
        **values,
    )
    await add_events(transaction, ended, events, epoch=epoch, at=session.clock)
    if gives_back:
        await settle_answers(transaction, session.pk, row.invocation_id)
    return ended


def ending_of(
    turn: Row | Turn, end: End, usage: Usage | None, before: Sequence[Event], causes: Causes | None
) -> tuple[list[Event], JsonObject]:
    """The last events of a turn that ends, and the columns of its row that say how it ended."""
    if isinstance(end, Failed) and not isinstance(end.error, LangoError):
        end = replace(end, error_id=turn.id)
    if usage is not None:
        end = replace(end, usage=usage)
    return [*before, end], {
        "state": end.type,
        "usage": asdict(end.usage),
        "error": error_data(end.error, end.error_id) if isinstance(end, Failed) else None,
        "causes": _all_causes(turn, end, causes or {}),
    }


def _all_causes(turn: Row | Turn, end: End, causes: Causes) -> JsonObject | None:
    """The causes of all attempts at a turn, that of its end first; MAX_CAUSES at most."""
    all_causes: JsonObject = {}
    if isinstance(end, Failed) and end.error_id:
        all_causes[end.error_id] = asdict(cause_of(end.error))
    all_causes |= turn.causes or {}
    all_causes |= {error_id: asdict(cause) for error_id, cause in causes.items()}
    return dict(list(all_causes.items())[:MAX_CAUSES]) or None


async def _stored_answer(transaction: Transaction, row: Row) -> bool:
    """Whether the session holds the answer of a turn; True if the turn answers nothing."""
    if row.answers is None:
        return True
    event_id = user_event_id(row.id)
    rows = await transaction.all(_MESSAGE, of_session=row.session_pk, event=event_id)
    return bool(rows)


async def add_events(
    transaction: Transaction,
    row: Row,
    events: Sequence[Event],
    *,
    epoch: int,
    at: datetime,
    batch: str | None = None,
) -> None:
    """Write events for which the row's counter has just been incremented."""
    first = row.last_event - len(events) + 1
    event_rows: list[JsonObject] = [
        {
            "session_pk": row.session_pk,
            "turn": row.number,
            "number": number,
            "epoch": epoch,
            "type": event.type,
            "data": event.data(),
            "batch": batch if number == first else None,
            "created": at,
        }
        for number, event in enumerate(events, first)
    ]
    if event_rows:
        await transaction.each(_ADD_EVENT, event_rows)


async def answered_calls(
    transaction: Transaction, session_pk: int, invocation_id: str
) -> dict[str, str]:
    """The calls of an invocation that submitted turns answer, each with its turn's id.

    A turn may answer several: `answers` holds the first, its input all.
    """
    rows = await transaction.all(_ANSWERS, of_session=session_pk, invocation=invocation_id)
    return {
        call: row.id
        for row in rows
        for call in (row.answers, *(answer["call_id"] for answer in row.input.get("answers", ())))
    }


async def answering_turn(
    transaction: Transaction, session_pk: int, invocation_id: str, call: str
) -> Row | None:
    """The turn whose first answer is to this call."""
    parameters = {"of_session": session_pk, "invocation": invocation_id}
    return await transaction.one(_ANSWER, **parameters, call=call)


async def waited_calls(transaction: Transaction, session_pk: int, invocation_id: str) -> set[str]:
    """The calls that the turns of an invocation have waited for."""
    waiting = await transaction.all(_WAITING, of_session=session_pk, invocation=invocation_id)
    return {call for row in waiting for call in row.waits_for}


async def is_open_invocation(transaction: Transaction, session_pk: int, invocation_id: str) -> bool:
    """Whether a turn of an invocation runs, or an answer to one waits to run."""
    return bool(await transaction.all(_OPEN, of_session=session_pk, invocation=invocation_id))


async def settle_answers(transaction: Transaction, session_pk: int, invocation_id: str) -> None:
    """Update the states of an invocation's waiting turns to match the submitted answers."""
    answers = await answered_calls(transaction, session_pk, invocation_id)
    waiting = await transaction.all(_WAITING, of_session=session_pk, invocation=invocation_id)
    for row in waiting:
        state = waits_on(row.waits_for, list(answers))
        if state != row.state:
            await change_turn(transaction, row, state=state)


async def read_waited_calls(database: Database, turn: Turn) -> set[str]:
    """The calls that the turns of a turn's invocation have waited for."""
    parameters = {"of_session": turn.session_pk, "invocation": turn.invocation_id}
    return {call for row in await database.read(_WAITING, **parameters) for call in row.waits_for}


async def read_turn(database: Database, tenant: str, turn_id: str) -> Turn:
    """The current state of a turn; TurnNotFoundError if the tenant has none of that id."""
    row = only(await database.read(_TURN_OF_TENANT, turn_id=turn_id, tenant=tenant))
    if row is None:
        raise unknown_turn(turn_id)
    return turn_of(row, SessionKey(row.tenant, row.app_name, row.user_id, row.session_id))


async def read_last_text(database: Database, turn: Turn) -> str | None:
    """The last text of a turn's agents in the history; None if there is none."""
    rows = await database.read(
        _LAST_TEXT, of_session=turn.session_pk, invocation=turn.invocation_id
    )
    row = only(rows)
    return None if row is None else row.content


async def delete_turns(connection: AsyncConnection, session_pk: int) -> None:
    """Delete the turns of a locked session: later writes of a worker that runs one are fenced.

    The turns are deleted first: that waits for a write to a log or the ledger in progress.
    """
    for table in (turns, turn_events, tool_ledger):
        await connection.execute(sa.delete(table).where(table.c.session_pk == session_pk))
