"""Appending in a transaction: every entry on SQLite, on PostgreSQL what one statement cannot do.

That is a rewind, a compaction, an entry that opens a long-running call, belongs to a task or has
blobs, and every entry while calls of the session are open.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from lango.core.values import JsonObject, json_value
from lango.errors import Fenced, SessionBusyError, SessionNotFoundError
from lango.store.db.clock import now
from lango.store.db.upserts import upsert
from lango.store.files.rows import save_blobs
from lango.store.schema.tables import (
    app_states,
    messages,
    sessions,
    state_changes,
    tool_ledger,
    user_states,
)
from lango.store.sessions.counters import Counters, advance
from lango.store.sessions.entries import Appended, Entry, SessionRef, StateChange
from lango.store.sessions.retained_rows import check_room
from lango.store.sessions.rewind import RewindResult, undo
from lango.store.turns.ledger import keys_of_call


async def append(
    connection: AsyncConnection,
    ref: SessionRef,
    entry: Entry,
    epoch: int | None,
    *,
    root_pk: int | None = None,
) -> Appended:
    """Append one entry under the session row's lock; `root_pk` is the session of its ledger."""
    session = await _locked(connection, ref, epoch)
    existing = await seq_of_event(connection, ref, entry.event_id)
    if existing is not None:
        return Appended(existing, duplicate=True)
    check_writer(session.epoch, session.owner, epoch)
    await save_blobs(connection, ref.key, entry.blobs)
    await _shorten_ledger(connection, session.pk if root_pk is None else root_pk, entry)
    undone = await undo(connection, session, entry)
    before = undone.counters if undone else Counters.of(session)
    check_room(before.pins, entry)
    after = advance(before, entry)
    await _insert(connection, session, entry, after, undone)
    await _update_session(connection, session, entry, after, undone)
    await write_shared_states(connection, ref, entry.state)
    return Appended(
        session.next_seq,
        state=undone.state if undone else None,
        artifacts=undone.artifacts if undone else None,
    )


async def _shorten_ledger(connection: AsyncConnection, root_pk: int, entry: Entry) -> None:
    """Replace a large output in the ledger by the event's marker: the artifact has all of it."""
    for blob in entry.blobs:
        if blob.call and blob.marker is not None:
            run = sa.and_(
                tool_ledger.c.session_pk == root_pk,
                tool_ledger.c.invocation_id == entry.invocation_id,
                tool_ledger.c.call_key.in_(keys_of_call(blob.call)),
            )
            update = sa.update(tool_ledger).where(run, tool_ledger.c.status == "finished")
            await connection.execute(update.values(result=blob.marker))


async def _locked(connection: AsyncConnection, ref: SessionRef, epoch: int | None) -> sa.Row[Any]:
    """The session's row, locked: lock first, then read, to see what others have just committed."""
    of_session = (sessions.c.pk == ref.pk, sessions.c.tenant == ref.key.tenant)
    session = (
        await connection.execute(sa.select(sessions).where(*of_session).with_for_update())
    ).one_or_none()
    if session is None:
        raise deleted(ref, epoch)
    return session


def deleted(ref: SessionRef, epoch: int | None) -> BaseException:
    """The error for a deleted session: Fenced for a writer with an epoch, which lost its turn."""
    return missing(ref) if epoch is None else Fenced()


def missing(ref: SessionRef) -> SessionNotFoundError:
    """The error for a session that does not exist."""
    return SessionNotFoundError(f"Session {ref.key.session_id} not found.")


def check_writer(epoch: int, owner: str | None, claim_epoch: int | None) -> None:
    """Only the turn that holds the session may write; without a turn, only while none holds it."""
    if claim_epoch is None and owner is not None:
        raise SessionBusyError
    if claim_epoch is not None and (claim_epoch != epoch or owner is None):
        raise Fenced


async def seq_of_event(connection: AsyncConnection, ref: SessionRef, event_id: str) -> int | None:
    """The seq of an event; None if it is not stored."""
    for table in (messages, state_changes):
        seq = await connection.scalar(
            sa.select(table.c.seq).where(table.c.session_pk == ref.pk, table.c.event_id == event_id)
        )
        if seq is not None:
            return seq
    return None


async def _insert(
    connection: AsyncConnection,
    session: sa.Row[Any],
    entry: Entry,
    after: Counters,
    undone: RewindResult | None,
) -> None:
    table, row = new_row(session.pk, entry, after)
    if undone and not entry.state_only:
        row["changes"] = undone.changes
    await connection.execute(sa.insert(table).values(row))


def new_row(session_pk: int, entry: Entry, after: Counters) -> tuple[sa.Table, JsonObject]:
    """The row of an entry and its table; `after` are the session's counters with the entry."""
    place: JsonObject = {
        "session_pk": session_pk,
        "seq": after.next_seq - 1,
        "event_id": entry.event_id,
        "invocation_id": entry.invocation_id,
    }
    if entry.state_only:
        return state_changes, place | {"delta": json_or_none(entry.changes)}
    return messages, place | _columns(entry) | {"cum_tokens": after.total_tokens}


def _columns(entry: Entry) -> JsonObject:
    return {
        "created": entry.created,
        "timestamp": entry.timestamp,
        "tokens": entry.tokens,
        "role": entry.role,
        "author": entry.author,
        "content": entry.content,
        "tool_calls": json_or_none(entry.tool_calls),
        "event": json_or_none(entry.event),
        "changes": json_or_none(entry.changes),
    }


def json_or_none(text: str | None) -> Any:
    """The value of a JSON column from its text."""
    return None if text is None else json_value(text)


async def _update_session(
    connection: AsyncConnection,
    session: sa.Row[Any],
    entry: Entry,
    after: Counters,
    undone: RewindResult | None,
) -> None:
    delta = undone.state if undone else entry.state.session
    values = after.columns | {"state": {**session.state, **delta}, "updated": entry.created}
    if entry.begins_turn(session.invocation_id):
        values["last_activity"] = now(connection)
    await connection.execute(sa.update(sessions).where(sessions.c.pk == session.pk).values(values))


async def write_shared_states(
    connection: AsyncConnection, ref: SessionRef, state: StateChange
) -> None:
    """Write the app's and the user's new values, in key order, so that all writers lock alike."""
    key = ref.key
    app = {"tenant": key.tenant, "app_name": key.app_name}
    await _upsert(connection, app_states, app, state.app)
    await _upsert(connection, user_states, app | {"user_id": key.user_id}, state.user)


async def _upsert(
    connection: AsyncConnection,
    table: sa.Table,
    scope: Mapping[str, str],
    values: Mapping[str, Any],
) -> None:
    if not values:
        return
    statement = upsert(connection, table)
    statement = statement.on_conflict_do_update(
        index_elements=list(table.primary_key.columns), set_={"value": statement.excluded.value}
    )
    rows = [{**scope, "key": name, "value": values[name]} for name in sorted(values)]
    await connection.execute(statement, rows)
