"""Appending in a transaction: every entry on SQLite, on PostgreSQL what one statement cannot do.

That is a rewind, a compaction, an entry that opens a long-running call, belongs to a task or has
blobs, and every entry while calls of the session are open.
"""

from __future__ import annotations

from typing import Any, Final, cast

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection

from lango.core.values import JsonObject, json_value
from lango.errors import Fenced, SessionBusyError, SessionNotFoundError
from lango.store.db.clock import NOW
from lango.store.db.statement import CoreTransaction, Prepared, Row, Transaction
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

_OF_SESSION: Final = (
    sessions.c.pk == sa.bindparam("of_pk"),
    sessions.c.tenant == sa.bindparam("of_tenant"),
)
_WHOLE: Final = Prepared(sa.select(sessions).where(*_OF_SESSION).with_for_update())
_COUNTERS: Final = Prepared(
    sa.select(
        *(sessions.c[name] for name in ("pk", "epoch", "owner", *Counters._fields)),
    )
    .where(*_OF_SESSION)
    .with_for_update()
)
_STATE: Final = Prepared(sa.select(sessions.c.state).where(sessions.c.pk == sa.bindparam("of_pk")))
_SEQ_OF_EVENT: Final = Prepared(
    sa.union_all(
        *(
            sa.select(table.c.seq).where(
                table.c.session_pk == sa.bindparam("of_pk"),
                table.c.event_id == sa.bindparam("of_event"),
            )
            for table in (messages, state_changes)
        )
    )
)
_INSERT: Final = {table: Prepared(sa.insert(table)) for table in (messages, state_changes)}
_UPDATE: Final = sa.update(sessions).where(sessions.c.pk == sa.bindparam("of_pk"))
_GO_ON: Final = Prepared(_UPDATE)
_BEGIN_TURN: Final = Prepared(_UPDATE.values(last_activity=NOW))


async def append(
    transaction: Transaction,
    ref: SessionRef,
    entry: Entry,
    epoch: int | None,
    *,
    root_pk: int | None = None,
) -> Appended:
    """Append one entry under the session row's lock; `root_pk` is the session of its ledger.

    An entry that is long takes a CoreTransaction.
    """
    session = await _locked(transaction, _WHOLE if entry.is_long else _COUNTERS, ref, epoch)
    stored = await transaction.one(_SEQ_OF_EVENT, of_pk=session.pk, of_event=entry.event_id)
    if stored is not None:
        return Appended(stored.seq, duplicate=True)
    check_writer(session.epoch, session.owner, epoch)
    undone = None
    if entry.is_long:
        connection = cast(CoreTransaction, transaction).connection
        await save_blobs(connection, ref.key, entry.blobs)
        await _shorten_ledger(connection, session.pk if root_pk is None else root_pk, entry)
        undone = await undo(connection, session, entry)
    await _write(transaction, session, entry, undone)
    await write_shared_states(transaction, ref, entry.state)
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


async def _locked(
    transaction: Transaction, statement: Prepared, ref: SessionRef, epoch: int | None
) -> Row:
    """The session's row, locked: lock first, then read, to see what others have just committed."""
    session = await transaction.one(statement, of_pk=ref.pk, of_tenant=ref.key.tenant)
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


async def _write(
    transaction: Transaction, session: Row, entry: Entry, undone: RewindResult | None
) -> None:
    """Insert the entry's row, and update the session's."""
    before = undone.counters if undone else Counters.of(session)
    check_room(before.retained_calls, entry)
    after = advance(before, entry)
    table, row = new_row(session.pk, entry, after)
    if undone and not entry.state_only:
        row["changes"] = undone.changes
    await transaction.all(_INSERT[table], **row)
    values = after.columns | {"updated": entry.created}
    delta = undone.state if undone else entry.state.session
    if delta:
        stored = cast(Row, await transaction.one(_STATE, of_pk=session.pk))
        values["state"] = {**stored.state, **delta}
    begins = entry.begins_turn(session.invocation_id)
    await transaction.all(_BEGIN_TURN if begins else _GO_ON, of_pk=session.pk, **values)


def new_row(session_pk: int, entry: Entry, after: Counters) -> tuple[sa.Table, JsonObject]:
    """The row of an entry and its table; `after` are the session's counters with the entry."""
    key_columns: JsonObject = {
        "session_pk": session_pk,
        "seq": after.next_seq - 1,
        "event_id": entry.event_id,
        "invocation_id": entry.invocation_id,
    }
    if entry.state_only:
        return state_changes, key_columns | {"delta": json_or_none(entry.changes)}
    return messages, key_columns | _columns(entry) | {"cum_tokens": after.total_tokens}


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


def _or_replace(insert: Any) -> Any:
    """An insert of a state's values that replaces older ones."""
    return insert.on_conflict_do_update(
        index_elements=list(insert.table.primary_key.columns),
        set_={"value": insert.excluded.value},
    )


_UPSERT: Final = {
    table: Prepared(
        _or_replace(postgresql.insert(table)), on_sqlite=_or_replace(sqlite.insert(table))
    )
    for table in (app_states, user_states)
}


async def write_shared_states(
    transaction: Transaction, ref: SessionRef, state: StateChange
) -> None:
    """Write the app's and the user's new values, in key order, so that all writers lock alike."""
    user = ref.key.of_user
    app = {"tenant": user["tenant"], "app_name": user["app_name"]}
    for table, scope, values in (app_states, app, state.app), (user_states, user, state.user):
        rows = [{**scope, "key": name, "value": values[name]} for name in sorted(values)]
        if rows:
            await transaction.each(_UPSERT[table], rows)
