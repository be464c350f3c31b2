"""The log of a turn: the events that subscribers read, numbered and fenced by the database.

An append numbers its batch by incrementing a counter in the turn's row. That row carries the
claim, so a worker that lost its turn finds no row to update. The row stays locked until the batch
is committed, so a reader that has seen event n has missed none before it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from lango.core.failpoints import failpoint
from lango.core.ids import new_id
from lango.core.turns.events import ENDS, Event
from lango.core.turns.positions import Position
from lango.core.values import JsonObject, json_text
from lango.errors import Fenced
from lango.store.db.clock import now, seconds
from lango.store.db.database import Database
from lango.store.db.retry import is_duplicate, retrying
from lango.store.db.statement import Prepared, Row, Transaction
from lango.store.schema.tables import turn_events, turns
from lango.store.turns import rows as turn_rows
from lango.store.turns.rows import Claim, Turn

PAGE: Final = 1_000
"""Events that one query reads."""
_POLLED_TOGETHER: Final = 500
_TRIMMED_TOGETHER: Final = 200
"""Logs that one transaction deletes; it locks their turns for so long."""
_TRIM_SHARE: Final = 0.25
"""The part of its time in which a trim occupies the database; it sleeps for the rest."""
_END_TYPES: Final = frozenset(end.type for end in ENDS)

# One round trip for the batches of all turns of a worker. The session's epoch is checked too:
# incrementing it closes the log, even if the turn is not taken over.
_APPEND: Final = """
with w as (
  select * from unnest($1::bigint[], $2::bigint[], $3::text[], $4::bigint[])
    as w(session_pk, turn, claim_id, count)
), t as (
  update turns set last_event = last_event + w.count
  from w
  where turns.session_pk = w.session_pk and turns.number = w.turn
    and turns.claim_id = w.claim_id and turns.state = 'running'
    and exists (select from sessions s where s.pk = turns.session_pk and s.epoch = turns.epoch
                and s.owner is not null)
  returning turns.session_pk, turns.number as turn, turns.epoch, turns.claim_id,
    turns.last_event, turns.last_event - w.count as before
), e as (
  insert into turn_events (session_pk, turn, number, epoch, type, data, batch, created)
  select t.session_pk, t.turn, t.before + e.ordinal, t.epoch, e.type, e.data,
    case when e.ordinal = 1 then $9 end, now()
  from t join unnest($5::text[], $6::bigint[], $7::text[], $8::json[])
    as e(claim_id, ordinal, type, data) on e.claim_id = t.claim_id
)
select claim_id, last_event, epoch, now() as created from t"""


# The turns are locked first, as when a session is deleted, so that the two cannot deadlock. The
# limit is a literal: for a parameter, PostgreSQL plans for a tenth of all rows. A batch starts at
# the end of the one before: until a vacuum, the index still has the entries of deleted logs.
_TRIM: Final = """
with doomed as (
  select session_pk, number, ended from turns
  where ended < now() - make_interval(secs => $1) and ended >= $2 and trimmed is null
  order by ended limit {limit} for update skip locked
), t as (
  update turns set trimmed = now() from doomed
  where turns.session_pk = doomed.session_pk and turns.number = doomed.number
), e as (
  delete from turn_events using doomed
  where turn_events.session_pk = doomed.session_pk and turn_events.turn = doomed.number
)
select count(*), max(ended) from doomed"""
_FIRST_END: Final = datetime(1, 1, 1, tzinfo=UTC)

_THIS_LOG: Final = turn_rows.is_log_of(sa.bindparam("of_session"), sa.bindparam("of_turn"))
_BEHIND: Final = Prepared(
    sa.select(turn_events)
    .where(_THIS_LOG, turn_events.c.number > sa.bindparam("after"))
    .order_by(turn_events.c.number)
    .limit(sa.bindparam("at_most"))
)
_OF_BATCH: Final = Prepared(
    sa.select(turn_events.c.number, turn_events.c.created).where(
        _THIS_LOG, turn_events.c.batch == sa.bindparam("of_batch")
    )
)


class LogWrite(NamedTuple):
    """Events to append to one turn's log."""

    claim: Claim
    events: Sequence[Event]


@dataclass(frozen=True, slots=True)
class LoggedEvent:
    """One event of a log, or a part of the text of an event that is about to be written."""

    number: int  # in its turn, from 1
    type: str
    data: JsonObject
    epoch: int  # of the attempt that wrote it
    at: float
    length: int | None = None  # of a part: the characters of the event up to the part's end

    @property
    def position(self) -> Position:
        """Where a reader is that has read up to here."""
        if self.length is None:
            return Position(self.number)
        return Position(self.number - 1, self.length, self.epoch)


class LogCursor:
    """A reader's position in a log, which passes on what the reader has not read."""

    def __init__(self, position: Position) -> None:
        self.position = position

    def read(self, event: LoggedEvent) -> LoggedEvent | None:
        """What is new of an event, or of a part of one; None if there is nothing new.

        A part is passed over while text before it is missing: its event will bring all of it.
        """
        if event.number <= self.position.number:
            return None
        read_length = self.position.has_of(event.number, event.epoch)
        text, start = str(event.data.get("text", "")), 0
        if event.length is not None:
            start = event.length - len(text)
            if event.number > self.position.number + 1 or not start <= read_length < event.length:
                return None
        self.position = event.position
        if read_length == start:
            return event
        remainder = text[read_length - start :]
        return replace(event, data={**event.data, "text": remainder}) if remainder else None


@dataclass(frozen=True, slots=True)
class LogPage:
    """Some events of a log, and the turn as it was last read."""

    turn: Turn
    events: Sequence[LoggedEvent]

    @property
    def is_end(self) -> bool:
        """Whether no event follows this page: the turn has ended."""
        if self.events:
            return self.events[-1].type in _END_TYPES
        return self.turn.ended is not None

    @property
    def is_full(self) -> bool:
        """Whether more events may be there already."""
        return len(self.events) >= PAGE


class TurnLog:
    """The logs of all turns."""

    def __init__(self, database: Database) -> None:
        self.database = database

    async def append(self, claim: Claim, events: Sequence[Event]) -> int:
        """Append to one turn's log; returns the last event's number. Fenced if the turn is lost."""
        (stored,) = await self.append_many([LogWrite(claim, events)])
        if stored is None:
            raise Fenced
        return stored[-1].number

    async def append_many(self, writes: Sequence[LogWrite]) -> list[Sequence[LoggedEvent] | None]:
        """Append to many logs at once; returns the logged events, None for a turn that is lost.

        ValueError for an end event: closing a turn writes it.
        """
        if any(isinstance(event, ENDS) for write in writes for event in write.events):
            raise ValueError("A turn's end is written by closing the turn.")
        batch = new_id("bat")  # a retry after a fault recognises its batch by it
        merged = _merged(writes)

        async def once() -> dict[str, list[LoggedEvent] | None]:
            if not self.database.is_sqlite:
                try:
                    return await self._append_at_once(merged, batch)
                except Exception as error:
                    if not is_duplicate(error):
                        raise
            async with self.database.transaction() as transaction:
                return {
                    write.claim.id: await _append(transaction, write, batch) for write in merged
                }

        failpoint("log.before")
        stored = await retrying(once)
        failpoint("log.after")
        return [stored.get(write.claim.id) for write in writes]

    async def _append_at_once(
        self, writes: Sequence[LogWrite], batch: str
    ) -> dict[str, list[LoggedEvent] | None]:
        turns_of = [(w.claim.turn.session_pk, w.claim.turn.number, w.claim.id) for w in writes]
        data_by_claim = {write.claim.id: types_and_data(write.events) for write in writes}
        lines = [
            (claim_id, ordinal, kind, json_text(data))
            for claim_id, events in data_by_claim.items()
            for ordinal, (kind, data) in enumerate(events, 1)
        ]
        columns = *_columns(turns_of, 3), [len(write.events) for write in writes]
        rows = await self.database.fetch(_APPEND, *columns, *_columns(lines, 4), batch)
        return {
            claim_id: logged_events(data_by_claim[claim_id], last, epoch, seconds(created))
            for claim_id, last, epoch, created in rows
        }

    async def read(
        self, tenant: str, turn_id: str, *, after: int = 0, limit: int = PAGE
    ) -> LogPage:
        """The events after number `after`, in order; TurnNotFoundError without such a turn."""
        # The turn first: its events are then at least as new as it.
        turn = await turn_rows.read_turn(self.database, tenant, turn_id)
        return await self.read_on(turn, after, limit=limit)

    async def read_on(self, turn: Turn, after: int, *, limit: int = PAGE) -> LogPage:
        """The events after number `after` of a turn that was read before, and is not read again.

        The log itself shows its end; it cannot show that it was deleted.
        """
        rows = await self.database.read(
            _BEHIND, of_session=turn.session_pk, of_turn=turn.number, after=after, at_most=limit
        )
        return LogPage(turn, [_logged(row) for row in rows])

    async def last_events(self, turn_ids: Collection[str]) -> dict[str, int]:
        """The number of the last event of each of these turns that has not ended."""
        ids, numbers = list(turn_ids), dict[str, int]()
        for first in range(0, len(ids), _POLLED_TOGETHER):
            is_one = turns.c.id.in_(ids[first : first + _POLLED_TOGETHER])
            statement = sa.select(turns.c.id, turns.c.last_event).where(
                is_one, turns.c.ended.is_(None)
            )
            rows = await self.database.read(_all_rows, statement)
            numbers |= {row.id: row.last_event for row in rows}
        return numbers

    async def read_all(self, turn: Turn) -> list[LoggedEvent]:
        """All events of a turn's log."""
        events: list[LoggedEvent] = []
        while True:
            after = events[-1].number if events else 0
            page = await self.read(turn.session.tenant, turn.id, after=after)
            events += page.events
            if not page.events or events[-1].number >= page.turn.last_event:
                return events

    async def trim(self, older_than: float) -> int:
        """Delete the logs of turns that ended over `older_than` seconds ago; returns how many.

        Deletes in small batches, with pauses, until no log is due. Several workers share the work:
        each skips the turns that another one has locked.
        """
        trimmed, since = 0, _FIRST_END
        while True:
            began = time.monotonic()
            count, last = await self._trim_batch(older_than, since)
            trimmed += count
            if count < _TRIMMED_TOGETHER:
                return trimmed
            since = last or since
            await asyncio.sleep((time.monotonic() - began) * (1 / _TRIM_SHARE - 1))

    async def _trim_batch(self, older_than: float, since: datetime) -> tuple[int, datetime | None]:
        """Delete logs in one transaction; returns how many, and the last end of their turns."""
        if self.database.is_sqlite:
            return await self.database.write(_trim_sqlite, older_than, is_long=True), None
        statement = _TRIM.format(limit=_TRIMMED_TOGETHER)
        (row,) = await retrying(lambda: self.database.fetch(statement, older_than, since))
        return row[0], row[1]


async def _all_rows(
    connection: AsyncConnection, statement: sa.Select[str, int]
) -> Sequence[sa.Row[str, int]]:
    return (await connection.execute(statement)).all()


async def _trim_sqlite(connection: AsyncConnection, older_than: float) -> int:
    """Delete a batch of logs: two statements, as the only writer waits for them."""
    old = (
        sa.select(turns.c.session_pk, turns.c.number)
        .where(
            turns.c.ended < now(connection) - timedelta(seconds=older_than),
            turns.c.ended.is_not(None),
            turns.c.trimmed.is_(None),
        )
        .order_by(turns.c.ended, turns.c.session_pk, turns.c.number)
        .limit(_TRIMMED_TOGETHER)
    )
    of_old = sa.tuple_(turn_events.c.session_pk, turn_events.c.turn).in_(old)
    await connection.execute(sa.delete(turn_events).where(of_old))
    is_old = sa.tuple_(turns.c.session_pk, turns.c.number).in_(old)
    marked = sa.update(turns).where(is_old).values(trimmed=now(connection))
    return (await connection.execute(marked)).rowcount


def _columns(rows: Sequence[tuple[Any, ...]], width: int) -> list[list[Any]]:
    """Rows as one array for each column, which the server reads faster than JSON."""
    return [[row[index] for row in rows] for index in range(width)]


def types_and_data(events: Sequence[Event]) -> list[tuple[str, JsonObject]]:
    """The types and data of events, as a log stores them."""
    return [(event.type, event.data()) for event in events]


def logged_events(
    typed_data: Sequence[tuple[str, JsonObject]], last: int, epoch: int, at: float
) -> list[LoggedEvent]:
    """Logged events, numbered so that the last of them has the number `last`."""
    first = last - len(typed_data) + 1
    return [
        LoggedEvent(number, kind, data, epoch, at)
        for number, (kind, data) in enumerate(typed_data, first)
    ]


def _logged(row: Row) -> LoggedEvent:
    return LoggedEvent(row.number, row.type, row.data, row.epoch, seconds(row.created))


def _merged(writes: Sequence[LogWrite]) -> list[LogWrite]:
    """One write per claim, sorted: all transactions lock turns in the same order."""
    merged: dict[tuple[int, int, str], list[Event]] = {}
    claims: dict[str, Claim] = {}
    for claim, events in writes:
        claims[claim.id] = claim
        key = (claim.turn.session_pk, claim.turn.number, claim.id)
        merged.setdefault(key, []).extend(events)
    return [LogWrite(claims[key[2]], merged[key]) for key in sorted(merged)]


async def _append(
    transaction: Transaction, write: LogWrite, batch: str
) -> list[LoggedEvent] | None:
    """Append one batch in a transaction, unless it is there; None if the turn is lost."""
    claim, events = write
    row = await turn_rows.lock_claimed(transaction, claim)
    if row is None:
        return None
    parameters = {"of_session": row.session_pk, "of_turn": row.number}
    stored = await transaction.one(_OF_BATCH, **parameters, of_batch=batch)
    if stored is not None:
        last, created = stored.number + len(events) - 1, stored.created
    else:
        moved = await turn_rows.change_turn(transaction, row, new_events=len(events))
        last, created = moved.last_event, row.clock
        await turn_rows.add_events(
            transaction, moved, events, epoch=row.epoch, at=created, batch=batch
        )
    return logged_events(types_and_data(events), last, row.epoch, seconds(created))
