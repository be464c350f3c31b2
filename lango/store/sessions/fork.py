"""Forking: a new session with the history of another up to a turn; the source is unchanged.

Rows keep their numbers. Rows that a later rewind undid existed at that point, and are copied.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from lango.core.values import JsonObject
from lango.store.db.clock import now
from lango.store.db.database import Database
from lango.store.db.upserts import upsert
from lango.store.files.rows import ARTIFACT, EVENT_DATA, of_key
from lango.store.schema.tables import (
    artifact_chunks,
    artifacts,
    messages,
    sessions,
    state_changes,
    turns,
)
from lango.store.sessions import rewind as rewinding
from lango.store.sessions.append import missing
from lango.store.sessions.conversations import ConversationPoint
from lango.store.sessions.counters import Counters
from lango.store.sessions.entries import SessionKey, SessionRef
from lango.store.sessions.retained_rows import before_rewind
from lango.store.turns.rows import is_turn


async def fork(
    database: Database, point: ConversationPoint, target: SessionKey, public_id: str
) -> None:
    """Create the session `target` with the history up to `point`; an existing one is left as it is.

    SessionNotFoundError if the session of the point was deleted.
    """
    target.checked()

    async def once(connection: AsyncConnection) -> None:
        statement = sa.select(sessions).where(sessions.c.pk == point.session_pk)
        source = (await connection.execute(statement)).one_or_none()
        if source is None:
            raise missing(SessionRef(point.session))
        new_pk = await _insert(connection, source, target, public_id)
        if new_pk is not None:
            await _fill(connection, source, point, target, new_pk)

    await database.write(once, is_long=True)


async def _insert(
    connection: AsyncConnection, source: sa.Row[Any], target: SessionKey, public_id: str
) -> int | None:
    moment = now(connection)
    row: dict[str, Any] = {
        **target.of_row,
        "public_id": public_id,
        "title": source.title,
        "state": {},
        "created": moment,
        "updated": moment,
        "last_activity": moment,
    }
    insert = upsert(connection, sessions).on_conflict_do_nothing().values(row)
    return await connection.scalar(insert.returning(sessions.c.pk))


async def _fill(
    connection: AsyncConnection,
    source: sa.Row[Any],
    point: ConversationPoint,
    target: SessionKey,
    new_pk: int,
) -> None:
    invocation = await connection.scalar(
        sa.select(turns.c.invocation_id).where(is_turn(source.pk, point.turn))
    )
    last = await _last_seq(connection, source.pk, point.turn)
    for table in (messages, state_changes):
        await _copy_rows(connection, table, source.pk, new_pk, last)
    changes, _ = await rewinding.changes_around(connection, new_pk, last + 1)
    counters = await _counters(connection, source, new_pk, last, invocation or "")
    values = counters.columns | {"state": await _state(connection, source, changes)}
    await connection.execute(sa.update(sessions).where(sessions.c.pk == new_pk).values(values))
    await copy_artifacts(connection, point.session, target, changes)


async def _last_seq(connection: AsyncConnection, pk: int, turn: int) -> int:
    """The last row before the next message after a turn; 0 if there is none.

    An answer to a call of an earlier invocation may come after the turn, and is no message: it is
    part of the history if it came before the next one.
    """
    of_session = sa.select(turns.c.invocation_id).where(turns.c.session_pk == pk)
    invocations = of_session.where(turns.c.number <= turn)
    later = of_session.where(turns.c.number > turn, turns.c.invocation_id.not_in(invocations))
    next_message = await _seqs(connection, sa.func.min, pk, later)
    before = min(next_message, default=None)
    return max(await _seqs(connection, sa.func.max, pk, invocations, before), default=0)


async def _seqs(
    connection: AsyncConnection,
    choose: Callable[[sa.ColumnElement[int]], sa.ColumnElement[int]],
    pk: int,
    invocations: sa.Select[tuple[str]],
    before: int | None = None,
) -> list[int]:
    """The first or last row of some invocations in each table that has one."""
    seqs: list[int] = []
    for table in (messages, state_changes):
        statement = sa.select(choose(table.c.seq)).where(
            table.c.session_pk == pk, table.c.invocation_id.in_(invocations)
        )
        if before is not None:
            statement = statement.where(table.c.seq < before)
        if (seq := await connection.scalar(statement)) is not None:
            seqs.append(seq)
    return seqs


async def _copy_rows(
    connection: AsyncConnection, table: sa.Table, old_pk: int, new_pk: int, last: int
) -> None:
    columns = [column for column in table.c if column.name not in ("session_pk", "undone_by")]
    stood = sa.or_(table.c.undone_by.is_(None), table.c.undone_by > last)
    rows = sa.select(sa.literal(new_pk), *columns).where(
        table.c.session_pk == old_pk, table.c.seq <= last, stood
    )
    names = ["session_pk", *(column.name for column in columns)]
    await connection.execute(sa.insert(table).from_select(names, rows))


async def _state(
    connection: AsyncConnection, source: sa.Row[Any], changes: list[JsonObject]
) -> JsonObject:
    """The state after the changes, with the initial values that no change touched."""
    before, _ = await rewinding.changes_around(connection, source.pk, source.next_seq)
    touched = {name for change in before for name in change.get(rewinding.STATE, {})}
    begun_with = {name: value for name, value in source.state.items() if name not in touched}
    return begun_with | rewinding.folded(changes, rewinding.STATE)


async def _counters(
    connection: AsyncConnection, source: sa.Row[Any], new_pk: int, last: int, invocation_id: str
) -> Counters:
    """The counters that the source had after its row `last`, from the copied rows."""
    of_session = messages.c.session_pk == new_pk
    sums = sa.select(sa.func.max(messages.c.cum_tokens), rewinding.MESSAGE_COUNT).where(of_session)
    tokens, count = (await connection.execute(sums)).one()
    first = sa.select(sa.func.min(messages.c.seq))
    turn_seq = await connection.scalar(
        first.where(of_session, messages.c.invocation_id == invocation_id)
    )
    calls = before_rewind(Counters.of(source).retained_calls, last + 1)
    return Counters(
        next_seq=last + 1,
        total_tokens=tokens or 0,
        message_count=int(count or 0),
        invocation_id=invocation_id,
        turn_seq=turn_seq or 1,
        compacted_seq=await rewinding.newest_compaction(
            connection, new_pk, source.compacted_seq, last + 1
        ),
        open_calls=calls.open,
        closed_calls=calls.closed,
    )


async def copy_artifacts(
    connection: AsyncConnection, old: SessionKey, target: SessionKey, changes: list[JsonObject]
) -> None:
    """Copy the data of events, and the versions of each artifact up to the one current then."""
    stood = rewinding.folded(changes, rewinding.ARTIFACTS)
    of_source = sa.or_(of_key(old, ARTIFACT), of_key(old, EVENT_DATA))
    columns = [column for column in artifacts.c if column.name not in ("pk", "session_id")]
    names = ["session_id", *(column.name for column in columns)]
    statement = sa.select(artifacts.c.pk, artifacts.c.kind, artifacts.c.name, artifacts.c.version)
    # Locked: while both rows refer to an object, it is not in the queue of deletions.
    locked = statement.where(of_source).with_for_update(read=True, key_share=True)
    for row in (await connection.execute(locked)).all():
        if row.kind == ARTIFACT and row.version > stood.get(row.name, -1):
            continue
        copied = sa.select(sa.literal(target.session_id), *columns).where(artifacts.c.pk == row.pk)
        insert = sa.insert(artifacts).from_select(names, copied)
        new_pk = await connection.scalar(insert.returning(artifacts.c.pk))
        chunks = sa.select(
            sa.literal(new_pk), artifact_chunks.c.number, artifact_chunks.c.data
        ).where(artifact_chunks.c.artifact_pk == row.pk)
        await connection.execute(
            sa.insert(artifact_chunks).from_select(["artifact_pk", "number", "data"], chunks)
        )
