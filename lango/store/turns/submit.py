"""Turns for their submitters: submit, answer, cancel and read."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from lango.core.ids import check_id, new_id
from lango.core.turns.events import Cancelled
from lango.core.turns.states import PENDING, Accepted, Busy, NewTurn
from lango.core.values import JsonObject, json_text
from lango.errors import CallNotFoundError, SessionBusyError, TurnConflictError
from lango.store.allowances import check_open_turns
from lango.store.db.database import Database
from lango.store.db.statement import Prepared, Row, Transaction
from lango.store.schema.tables import IS_QUEUED, IS_RUNNING, sessions, turns
from lango.store.sessions.append import missing
from lango.store.sessions.entries import SessionKey, SessionRef
from lango.store.sessions.load import key_is
from lango.store.turns import rows as turn_rows
from lango.store.turns.heads import flow_of
from lango.store.turns.rows import OF_SESSION, LockedSession, Turn, turn_of
from lango.store.turns.statements import SUBMIT, SUBMIT_LOCKS, SUBMIT_VALUES, turn_and_rest
from lango.store.turns.traces import store_step
from lango.telemetry.tracing import names
from lango.telemetry.tracing.current import submitted_traceparent

Check = Callable[[], object]
"""Raises if an answer cannot be used."""
Admit = Callable[[], Awaitable[None]]
"""Raises if no new turn may be accepted; not called for one that was accepted before."""
Accepting = Callable[[Transaction], Awaitable[None]]
"""Writes what belongs to a turn, in the transaction that accepts it."""


@dataclass(frozen=True, slots=True)
class Submitted:
    """The result of submitting a turn."""

    turn: Turn
    repeated: bool = False  # it existed: the same idempotency key, or the same answer
    wakes: bool = False  # the session had no work for a worker before, and has now
    interrupted: str | None = None  # the turn that was asked to stop for it


@dataclass(frozen=True, slots=True)
class _Queue:
    """A summary of a session's queue."""

    last_number: int
    running: str | None  # the id of the turn
    first_position: int | None
    last_position: int | None

    @property
    def is_busy(self) -> bool:
        return self.running is not None or self.first_position is not None

    def position(self, busy: Busy) -> int:
        """The position of a new turn: after the others, or before them all."""
        if busy == "interrupt":
            return (1 if self.first_position is None else self.first_position) - 1
        return (self.last_position or 0) + 1


_GLANCE: Final = Prepared(
    sa.select(
        sa.select(sa.func.max(turns.c.number)).where(OF_SESSION).scalar_subquery()
        .label("last_number"),
        sa.select(turns.c.id).where(OF_SESSION, IS_RUNNING).scalar_subquery().label("running"),
        sa.select(sa.func.min(turns.c.queue_position)).where(OF_SESSION, IS_QUEUED)
        .scalar_subquery().label("first_position"),
        sa.select(sa.func.max(turns.c.queue_position)).where(OF_SESSION, IS_QUEUED)
        .scalar_subquery().label("last_position"),
    )
)  # fmt: skip
_UNDER_KEY: Final = Prepared(
    sa.select(turns).where(OF_SESSION, turns.c.idempotency_key == sa.bindparam("given_key"))
)
_ACCEPTED: Final = Prepared(
    sa.select(turns.c.number)
    .join(sessions, sessions.c.pk == turns.c.session_pk)
    .where(
        *(sessions.c[name] == sa.bindparam(name) for name in ("tenant", "app_name", "user_id")),
        sessions.c.id == sa.bindparam("session_id"),
        turns.c.idempotency_key == sa.bindparam("given_key"),
    )
)
_JSON: Final = frozenset({"input", "options"})
_INSERT: Final = Prepared(sa.insert(turns).returning(turns))
_NAME: Final = Prepared(
    sa.update(sessions)
    .where(sessions.c.pk == sa.bindparam("of_session"), sessions.c.title == "")
    .values(title=sa.bindparam("new_title"))
)
_STOP_RUNNING: Final = Prepared(
    sa.update(turns).where(OF_SESSION, IS_RUNNING).values(cancel_requested=sa.true())
)
_HIDE_READY: Final = Prepared(
    sa.update(turns)
    .where(OF_SESSION, IS_QUEUED, turns.c.ready.is_not(None))
    .values(ready=sa.null())
)


class SqlTurnStore:
    """The turns of all sessions. Every operation may be repeated after a fault."""

    def __init__(self, database: Database) -> None:
        self.database = database

    async def submit(
        self,
        key: SessionKey,
        new: NewTurn,
        *,
        busy: Busy = "enqueue",
        after: int | None = None,
        pk: int | None = None,
        public_id: str | None = None,
        admit: Admit | None = None,
    ) -> Submitted:
        """Accept a turn: from here on it ends or waits for input, even if its worker dies.

        The same idempotency key and input return the same turn, another input raises
        TurnConflictError. `busy` does not apply to a scheduled turn: it is queued after the others
        when it is due. SessionBusyError if the session's last turn has another number than `after`.
        With `pk` or `public_id`, SessionNotFoundError if another session has the name by now.
        `admit` raises if no new turn may be accepted. The message of a session's first turn becomes
        its title, if it has none.
        """
        key.checked()
        turn_id, new = new_id("turn"), new.checked()  # before the first try: a retry reuses them
        if admit is not None and not await self.is_accepted(key, new.idempotency_key):
            await admit()

        row = _new_row(key, new, turn_id)
        with store_step(names.SUBMIT, self.database):
            return await self._submit(key, row, new, busy, after, (pk, public_id))

    async def _submit(
        self,
        key: SessionKey,
        row: JsonObject,
        new: NewTurn,
        busy: Busy,
        after: int | None,
        expected: tuple[int | None, str | None],
    ) -> Submitted:
        """Store a new turn, if the session has the expected primary key and public id."""
        pk, public_id = expected

        async def once(transaction: Transaction) -> Submitted:
            session = await turn_rows.lock_session_by_key(transaction, key)
            if (
                session is None
                or pk not in (None, session.pk)
                or public_id not in (None, session.public_id)
            ):
                raise missing(SessionRef(key))
            existing = await self._known(transaction, session, row)
            if existing is not None:
                return existing
            await check_open_turns(transaction, new.key_id, new.turn_limit)
            submitted = await self._accept(transaction, session, row, busy, after)
            if submitted.turn.number == 1:
                await transaction.all(_NAME, of_session=session.pk, new_title=new.title)
            return submitted

        is_usual = row["state"] == "queued" and busy != "interrupt" and new.turn_limit is None
        if is_usual and not self.database.is_sqlite:
            conditions = pk, public_id, row["idempotency_key"], after, busy == "reject"
            submitted = await self._submit_at_once(key, row, conditions, new.title)
            if submitted is not None:
                return submitted
        return await self.database.transact(once, session=key)

    async def _submit_at_once(
        self, key: SessionKey, row: JsonObject, conditions: Sequence[Any], title: str
    ) -> Submitted | None:
        """Accept a turn in one statement; None if that is not possible, and nothing was done."""
        names = key.tenant, key.app_name, key.user_id, key.session_id
        values = (json_text(row[name]) if name in _JSON else row[name] for name in SUBMIT_VALUES)
        records = await self.database.fetch_locked(
            SUBMIT, *names, *conditions, *values, title, locking=SUBMIT_LOCKS, session=key
        )
        if not records:
            raise missing(SessionRef(key))
        inserted, _ = turn_and_rest(records[0])
        if inserted is None:
            return None
        return Submitted(turn_of(inserted, key), wakes=inserted.ready is not None)

    async def is_accepted(self, key: SessionKey, idempotency_key: str | None) -> bool:
        """Whether a turn of the session has this idempotency key."""
        if idempotency_key is None:
            return False
        rows = await self.database.read(_ACCEPTED, **key.of_part, given_key=idempotency_key)
        return bool(rows)

    async def answer(
        self,
        tenant: str,
        turn_id: str,
        call_id: str,
        new: NewTurn,
        *others: str,
        repeats: bool = False,
        check: Check | None = None,
        admit: Admit | None = None,
        accepting: Accepting | None = None,
    ) -> Submitted:
        """Accept an answer to a call that a turn waits for, as a new turn of the same invocation.

        It also answers the calls `others`. `turn_id` names any turn of the invocation. A second
        answer to a call raises TurnConflictError; with `repeats`, the same answer returns the
        existing turn. A call that no turn waits for raises CallNotFoundError, or SessionBusyError
        while a turn of the invocation may come to wait for it. `check` raises if the answer cannot
        be used, `admit` if no new turn may be accepted; `accepting` writes more in the transaction
        that accepts the answer. None of them is called for an answer that was accepted before.
        """
        calls = call_id, *others
        for call in calls:
            check_id("call id", call)
        answer_id, new = new_id("turn"), new.checked()
        turn = await self.get(tenant, turn_id)

        async def look(
            transaction: Transaction,
        ) -> tuple[LockedSession, JsonObject, Submitted | None]:
            session, asking_turn = await turn_rows.lock_session_of(transaction, turn)
            row = _new_row(session.key, new, answer_id) | {
                "invocation_id": asking_turn.invocation_id,
                "answers": call_id,
                "input_hash": new.hash(session.key.app_name, asking_turn.invocation_id, call_id),
            }
            existing = await self._known(transaction, session, row)
            if existing is None and repeats:
                existing = await _same_answer(transaction, session, row)
            if existing is None:
                await _check_waiting(transaction, asking_turn, calls, check)
            return session, row, existing

        async def once(transaction: Transaction) -> Submitted:
            session, row, existing = await look(transaction)
            if existing is not None:
                return existing
            await check_open_turns(transaction, new.key_id, new.turn_limit)
            submitted = await self._accept(transaction, session, row, "enqueue")
            await turn_rows.settle_answers(transaction, session.pk, row["invocation_id"])
            if accepting is not None:
                await accepting(transaction)
            return submitted

        if admit is not None:  # outside a transaction, which would keep the session locked
            _, _, existing = await self.database.transact(look, session=turn.session)
            if existing is not None:
                return existing
            await admit()
        return await self.database.transact(once, session=turn.session)

    async def cancel(self, tenant: str, turn_id: str) -> Turn:
        """Cancel a turn: end a pending one, ask a running one to stop, leave an ended one."""
        turn = await self.get(tenant, turn_id)

        async def once(transaction: Transaction) -> Turn:
            session, row = await turn_rows.lock_session_of(transaction, turn)
            if row.state in PENDING:
                row = await _drop(transaction, session, row)
            elif row.state == "running" and not row.cancel_requested:
                row = await turn_rows.change_turn(transaction, row, cancel_requested=True)
            return turn_of(row, session.key)

        return await self.database.transact(once, session=turn.session)

    async def get(self, tenant: str, turn_id: str) -> Turn:
        """The current state of a turn; TurnNotFoundError if the tenant has none of that id."""
        return await turn_rows.read_turn(self.database, tenant, turn_id)

    async def waited_calls(self, turn: Turn) -> set[str]:
        """The calls that the turns of a turn's invocation have waited for."""
        return await turn_rows.read_waited_calls(self.database, turn)

    async def of_session(
        self, key: SessionKey, *, before: int | None = None, limit: int = 50
    ) -> list[Turn]:
        """A page of a session's turns, the newest first, below the number `before`."""
        statement = (
            sa.select(turns)
            .join(sessions, sessions.c.pk == turns.c.session_pk)
            .where(key_is(key), *([] if before is None else [turns.c.number < before]))
            .order_by(turns.c.number.desc())
            .limit(limit)
        )

        async def once(connection: AsyncConnection) -> list[Turn]:
            return [turn_of(row, key) for row in await connection.execute(statement)]

        return await self.database.read(once)

    async def _known(
        self, transaction: Transaction, session: LockedSession, new: JsonObject
    ) -> Submitted | None:
        """The existing turn with this idempotency key, perhaps of our own interrupted try."""
        key = new["idempotency_key"]
        row = await transaction.one(_UNDER_KEY, of_session=session.pk, given_key=key)
        if row is None:
            return None
        if row.input_hash != new["input_hash"]:
            raise TurnConflictError(
                f"The idempotency key {row.idempotency_key} belongs to another turn of this "
                "session, with another input. Use a new key for a new turn."
            )
        return Submitted(turn_of(row, session.key), repeated=True)

    async def _accept(
        self,
        transaction: Transaction,
        session: LockedSession,
        new: JsonObject,
        busy: Busy,
        after: int | None = None,
    ) -> Submitted:
        queue = await _summarise_queue(transaction, session.pk)
        if after is not None and queue.last_number != after:
            raise SessionBusyError("Another turn was submitted to this session in the meantime.")
        if new["state"] == "scheduled":
            row = await _insert(transaction, session, new, number=queue.last_number + 1)
            return Submitted(turn_of(row, session.key))
        if busy == "reject" and queue.is_busy:
            raise SessionBusyError("A turn of this session is running or waits to run.")
        first = queue.running is None and (busy == "interrupt" or queue.first_position is None)
        if busy == "interrupt":
            await _interrupt_running(transaction, session.pk)
        row = await _insert(
            transaction,
            session,
            new,
            number=queue.last_number + 1,
            queue_position=queue.position(busy),
            ready=session.clock if first else None,
        )
        interrupted = queue.running if busy == "interrupt" else None
        return Submitted(
            turn_of(row, session.key), wakes=not queue.is_busy, interrupted=interrupted
        )


def _new_row(key: SessionKey, new: NewTurn, turn_id: str) -> JsonObject:
    """A new turn's row, without what its session's row and queue determine."""
    app = key.app_name
    return {
        "id": turn_id,
        "app": app,
        "tenant": key.tenant,
        "flow": flow_of(key.tenant, new.key_id or ""),
        "state": "queued" if new.run_at is None else "scheduled",
        "invocation_id": turn_id,
        "input": new.input,
        "options": new.options,
        "input_hash": new.hash(app),
        "idempotency_key": new.idempotency_key or turn_id,
        # SQLite keeps times without their zone.
        "run_at": None if new.run_at is None else new.run_at.astimezone(UTC),
        "time_limit": new.time_limit,
        "key_id": new.key_id or None,
        "cost_limit": new.cost_limit,
        "traceparent": submitted_traceparent(turn_id),
    }


async def _insert(
    transaction: Transaction, session: LockedSession, new: JsonObject, **values: Any
) -> Row:
    """Write the turn, and `accepted` as the first event of its log."""
    of_session = {"session_pk": session.pk, "epoch": session.epoch, "created": session.clock}
    row = {**new, **values, **of_session, "last_event": 1}
    (inserted,) = await transaction.all(_INSERT, **row)
    run_at = new["run_at"] and new["run_at"].isoformat()
    accepted = Accepted(inserted.number, run_at)
    await turn_rows.add_events(
        transaction, inserted, [accepted], epoch=session.epoch, at=session.clock
    )
    return inserted


async def _summarise_queue(transaction: Transaction, session_pk: int) -> _Queue:
    """Summarise a session's queue, each value from the end of an index."""
    (row,) = await transaction.all(_GLANCE, of_session=session_pk)
    return _Queue(row.last_number or 0, row.running, row.first_position, row.last_position)


async def _interrupt_running(transaction: Transaction, session_pk: int) -> None:
    """Ask the running turn to stop, and make the next queued turn unclaimable."""
    await transaction.all(_STOP_RUNNING, of_session=session_pk)
    await transaction.all(_HIDE_READY, of_session=session_pk)


async def _same_answer(
    transaction: Transaction, session: LockedSession, new: JsonObject
) -> Submitted | None:
    """The turn that gives the same answer to the same call, if there is one."""
    row = await turn_rows.answering_turn(
        transaction, session.pk, new["invocation_id"], new["answers"]
    )
    if row is None or row.input_hash != new["input_hash"]:
        return None
    return Submitted(turn_of(row, session.key), repeated=True)


async def _check_waiting(
    transaction: Transaction, asking_turn: Row, calls: Sequence[str], check: Check | None
) -> None:
    """Raise unless every call waits for an answer and the check passes."""
    invocation = asking_turn.session_pk, asking_turn.invocation_id
    answering_turns = await turn_rows.answered_calls(transaction, *invocation)
    for call in calls:
        if call in answering_turns:
            raise TurnConflictError(
                f"The call {call} has been answered already, by {answering_turns[call]}."
            )
    waiting_calls = await turn_rows.waited_calls(transaction, *invocation)
    unknown = [call for call in calls if call not in waiting_calls]
    if unknown and await turn_rows.is_open_invocation(transaction, *invocation):
        raise SessionBusyError(
            f"Turn {asking_turn.id} is not over, and waits for no result yet. Send it again."
        )
    if check is not None:
        check()  # its error for an unknown call may be more precise
    if unknown:
        raise CallNotFoundError(f"Turn {asking_turn.id} does not wait for {unknown[0]}.")


async def _drop(transaction: Transaction, session: LockedSession, row: Row) -> Row:
    """End a pending turn; the call that it was to answer is open again."""
    dropped = await turn_rows.end_turn(transaction, session, row, Cancelled(), epoch=session.epoch)
    if row.ready is not None:
        # A worker that comes for this turn claims the next one.
        await turn_rows.make_ready(transaction, session)
    return dropped
