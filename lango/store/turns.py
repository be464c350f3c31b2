"""Turns for those who hand them in: submit, answer, cancel, and look."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC
from functools import partial
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from lango.core.ids import check_id, new_id
from lango.core.turn_states import PENDING, Accepted, Busy, NewTurn
from lango.core.turns import Cancelled
from lango.core.values import JsonObject
from lango.errors import SessionBusyError, TurnConflictError
from lango.store import turn_rows
from lango.store.appending import missing
from lango.store.clock import now
from lango.store.database import Database
from lango.store.entries import SessionKey, SessionRef
from lango.store.loading import key_is
from lango.store.tables import IS_QUEUED, IS_RUNNING, sessions, turns
from lango.store.turn_rows import Head, LockedSession, OnHead, Turn, turn_of


@dataclass(frozen=True, slots=True)
class Submitted:
    """What became of a turn that was handed in."""

    turn: Turn
    repeated: bool = False  # it was there already, under the same idempotency key
    wakes: bool = False  # the session had no work for a worker before, and has now
    interrupted: str | None = None  # the turn that was asked to stop for it


@dataclass(frozen=True, slots=True)
class _Queue:
    """A session's queue at a glance."""

    last_number: int
    running: str | None  # the id of the turn
    first_place: int | None
    last_place: int | None

    @property
    def is_busy(self) -> bool:
        return self.running is not None or self.first_place is not None

    def place(self, busy: Busy) -> int:
        """Where a new turn goes: behind the others, or before them all."""
        if busy == "interrupt":
            return (1 if self.first_place is None else self.first_place) - 1
        return (self.last_place or 0) + 1


class SqlTurnStore:
    """The turns of all sessions. Every operation may be repeated after a fault."""

    def __init__(self, database: Database, *, on_head: OnHead | None = None) -> None:
        self.database = database
        self._on_head = on_head

    async def submit(
        self, key: SessionKey, new: NewTurn, *, busy: Busy = "enqueue", after: int | None = None
    ) -> Submitted:
        """Accept a turn: from here on it ends, whatever happens.

        The same idempotency key and input give the same turn, another input TurnConflictError.
        `busy` says nothing about a scheduled turn: that one goes behind the others when it is due.
        SessionBusyError if the session's last turn has another number than `after`.
        """
        key.checked()
        turn_id, new = new_id("turn"), new.checked()  # before the first try, which a retry repeats

        async def once(connection: AsyncConnection) -> Submitted:
            session = await turn_rows.lock_session(connection, key_is(key))
            if session is None:
                raise missing(SessionRef(key))
            row = _new_row(session, new, turn_id)
            return await self._known(connection, session, row) or await self._accept(
                connection, session, row, busy, after
            )

        return await self.database.change(once)

    async def answer(
        self, tenant: str, turn_id: str, call_id: str, new: NewTurn, *others: str
    ) -> Submitted:
        """Accept a person's answer to a call that a turn waits for: a turn of the same invocation.

        It may answer others, too. A second answer to a call is a TurnConflictError, and so is one
        that nobody waits for.
        """
        for call in (call_id, *others):
            check_id("call id", call)
        answer_id, new = new_id("turn"), new.checked()

        async def once(connection: AsyncConnection) -> Submitted:
            session, asked = await turn_rows.lock_session_of(connection, tenant, turn_id)
            row = _new_row(session, new, answer_id) | {
                "invocation_id": asked.invocation_id,
                "answers": call_id,
                "input_hash": new.hash(session.key.app_name, asked.invocation_id, call_id),
            }
            known = await self._known(connection, session, row)
            if known is not None:
                return known
            await _check_unanswered(connection, asked, (call_id, *others))
            submitted = await self._accept(connection, session, row, "enqueue")
            await turn_rows.settle_answers(connection, session.pk, asked.invocation_id)
            return submitted

        return await self.database.change(once)

    async def cancel(self, tenant: str, turn_id: str) -> Turn:
        """End a turn that has not begun, ask one that runs to stop, leave one that is over."""

        async def once(connection: AsyncConnection) -> Turn:
            session, row = await turn_rows.lock_session_of(connection, tenant, turn_id)
            if row.state in PENDING:
                row = await _drop(connection, session, row)
            elif row.state == "running" and not row.cancel_requested:
                row = await turn_rows.change_turn(connection, row, cancel_requested=True)
            return turn_of(row, session.key)

        return await self.database.change(once)

    async def get(self, tenant: str, turn_id: str) -> Turn:
        """A turn as it stands; TurnNotFoundError if the tenant has none of that id."""

        turn = await self.database.look(partial(read_turn, tenant=tenant, turn_id=turn_id))
        if turn is None:
            raise turn_rows.unknown_turn(turn_id)
        return turn

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

        return await self.database.look(once)

    async def _known(
        self, connection: AsyncConnection, session: LockedSession, new: JsonObject
    ) -> Submitted | None:
        """The turn that stands under this key already, perhaps by a try of ours that was cut."""
        mine = turns.c.session_pk == session.pk
        same_key = turns.c.idempotency_key == new["idempotency_key"]
        found = await connection.execute(sa.select(turns).where(mine, same_key))
        row = found.one_or_none()
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
        connection: AsyncConnection,
        session: LockedSession,
        new: JsonObject,
        busy: Busy,
        after: int | None = None,
    ) -> Submitted:
        queue = await _glance(connection, session.pk)
        if after is not None and queue.last_number != after:
            raise SessionBusyError("Another turn of this session has been handed in meanwhile.")
        if new["state"] == "scheduled":
            row = await _insert(connection, session, new, number=queue.last_number + 1)
            return Submitted(turn_of(row, session.key))
        if busy == "reject" and queue.is_busy:
            raise SessionBusyError("A turn of this session is running or waits to run.")
        first = queue.running is None and (busy == "interrupt" or queue.first_place is None)
        if busy == "interrupt":
            await _make_way(connection, session.pk)
        row = await _insert(
            connection,
            session,
            new,
            number=queue.last_number + 1,
            place=queue.place(busy),
            ready=now(connection) if first else None,
        )
        if not queue.is_busy and self._on_head is not None:
            await self._on_head(connection, Head(session.pk, session.key.app_name))
        interrupted = queue.running if busy == "interrupt" else None
        return Submitted(
            turn_of(row, session.key), wakes=not queue.is_busy, interrupted=interrupted
        )


def _new_row(session: LockedSession, new: NewTurn, turn_id: str) -> JsonObject:
    """What a turn's row holds from the start, but for its place."""
    app = session.key.app_name
    return {
        "session_pk": session.pk,
        "id": turn_id,
        "app": app,
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
    }


async def _insert(
    connection: AsyncConnection, session: LockedSession, new: JsonObject, **values: Any
) -> sa.Row[Any]:
    """Write the turn, and `accepted` as the first event of its log."""
    row = {**new, **values, "epoch": session.epoch, "last_event": 1, "created": now(connection)}
    inserted = (await connection.execute(sa.insert(turns).values(row).returning(turns))).one()
    run_at = new["run_at"] and new["run_at"].isoformat()
    accepted = Accepted(inserted.number, run_at)
    await turn_rows.add_events(connection, inserted, [accepted], epoch=session.epoch)
    return inserted


async def _glance(connection: AsyncConnection, session_pk: int) -> _Queue:
    """A session's queue, each figure from the end of an index."""
    mine = turns.c.session_pk == session_pk
    figures: dict[str, sa.Select[Any]] = {
        "last_number": sa.select(sa.func.max(turns.c.number)).where(mine),
        "running": sa.select(turns.c.id).where(mine, IS_RUNNING),
        "first_place": sa.select(sa.func.min(turns.c.place)).where(mine, IS_QUEUED),
        "last_place": sa.select(sa.func.max(turns.c.place)).where(mine, IS_QUEUED),
    }
    columns = (figure.scalar_subquery().label(name) for name, figure in figures.items())
    row = (await connection.execute(sa.select(*columns))).one()
    return _Queue(row.last_number or 0, row.running, row.first_place, row.last_place)


async def _make_way(connection: AsyncConnection, session_pk: int) -> None:
    """Ask the turn that runs to stop; the one that would be next no longer is."""
    mine = turns.c.session_pk == session_pk
    stop = sa.update(turns).where(mine, IS_RUNNING).values(cancel_requested=True)
    await connection.execute(stop)
    shown = (mine, IS_QUEUED, turns.c.ready.is_not(None))
    await connection.execute(sa.update(turns).where(*shown).values(ready=None))


async def _check_unanswered(
    connection: AsyncConnection, asked: sa.Row[Any], calls: Sequence[str]
) -> None:
    by = await turn_rows.answered_calls(connection, asked.session_pk, asked.invocation_id)
    for call in calls:
        if call not in (asked.waits_for or ()):
            raise TurnConflictError(f"Turn {asked.id} does not wait for an answer to {call}.")
        if call in by:
            raise TurnConflictError(f"The call {call} has been answered already, by {by[call]}.")


async def _drop(
    connection: AsyncConnection, session: LockedSession, row: sa.Row[Any]
) -> sa.Row[Any]:
    """End a turn that has not begun. Nobody has seen the answer it held: the call is open again."""
    dropped = await turn_rows.end_turn(
        connection, row, Cancelled(), epoch=session.epoch, answers=None
    )
    if row.answers is not None:
        await turn_rows.settle_answers(connection, session.pk, row.invocation_id)
    if row.ready is not None:
        await turn_rows.make_ready(connection, session)  # whoever comes for this one takes the next
    return dropped


async def read_turn(connection: AsyncConnection, tenant: str, turn_id: str) -> Turn | None:
    """A turn of a tenant, with the key of its session."""
    names = (sessions.c.tenant, sessions.c.app_name, sessions.c.user_id)
    statement = (
        sa.select(turns, *names, sessions.c.id.label("session_id"))
        .join(sessions, sessions.c.pk == turns.c.session_pk)
        .where(turns.c.id == turn_id, sessions.c.tenant == tenant)
    )
    row = (await connection.execute(statement)).one_or_none()
    if row is None:
        return None
    return turn_of(row, SessionKey(row.tenant, row.app_name, row.user_id, row.session_id))
