"""Bulk import of sessions from another system: each whole in one transaction, or not at all.

A second import recognises entries by their event ids and adds the missing ones. It never overwrites
what was written here in the meantime.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from lango.core.failpoints import failpoint
from lango.core.ids import new_id
from lango.core.values import JsonObject
from lango.errors import SessionBusyError, SessionExistsError
from lango.store.db.upserts import upsert
from lango.store.files import rows as artifact_rows
from lango.store.schema.tables import app_states, messages, sessions, state_changes, user_states
from lango.store.sessions.append import new_row
from lango.store.sessions.counters import Counters, advance
from lango.store.sessions.entries import Entry, SessionKey, StoredMessage, readable_time
from lango.store.sessions.load import ROW, key_is, read_states
from lango.store.sessions.rewind import undo
from lango.store.sessions.store import SqlSessionStore

PAGE: Final = 500
EntryBatches = Callable[[], AsyncGenerator[list[Entry]]]


@dataclass(frozen=True, slots=True)
class ForeignSession:
    """A session to import, without its events."""

    key: SessionKey
    state: JsonObject
    created: float
    updated: float


@dataclass(frozen=True, slots=True)
class ImportResult:
    """The result of importing a session."""

    is_new: bool
    added: int  # rows
    existing: int  # rows that were here before
    continued: int  # rows here that the source does not have: the session has been used since


@dataclass(frozen=True, slots=True)
class StoredChange:
    """One row of `state_changes`."""

    seq: int
    event_id: str
    invocation_id: str
    delta: JsonObject


class SessionImporter:
    """Writes the sessions of another system."""

    def __init__(self, store: SqlSessionStore) -> None:
        self._database = store.database

    async def import_session(self, session: ForeignSession, batches: EntryBatches) -> ImportResult:
        """Import a session; `batches` yields its entries in order, from the start on each call."""
        session.key.checked()
        imported = await self._database.write(_import, session, batches, is_long=True)
        failpoint("import.session")
        return imported

    async def import_states(
        self, keys: Sequence[tuple[SessionKey, JsonObject]], *, overwrite: bool
    ) -> None:
        """Write app states (keys without a user) and user states; without `overwrite` only new."""

        async def write(connection: AsyncConnection) -> None:
            for key, state in keys:
                await write_state(connection, key, state, overwrite=overwrite)

        await self._database.write(write)
        failpoint("import.states")

    async def count_sessions(self, tenant: str, app_name: str) -> int:
        """How many sessions an app has here."""
        of_app = (sessions.c.tenant == tenant, sessions.c.app_name == app_name)
        statement = sa.select(sa.func.count()).where(*of_app)
        return await self._database.read(lambda connection: connection.scalar(statement)) or 0

    async def shared_states(self, key: SessionKey) -> tuple[JsonObject, JsonObject]:
        """The app's and the user's state."""
        return await self._database.read(read_states, key)

    @asynccontextmanager
    async def stored(self, key: SessionKey) -> AsyncGenerator[StoredCopy]:
        """Read a session back, in one snapshot."""
        columns = (sessions.c.pk, sessions.c.next_seq, sessions.c.state)
        async with self._database.snapshot() as connection:
            await _wait_for_source(connection)
            row = (await connection.execute(sa.select(*columns).where(key_is(key)))).one()
            yield StoredCopy(connection, row.pk, row.next_seq - 1, row.state)


@dataclass(frozen=True, slots=True)
class StoredCopy:
    """A session as it is stored here."""

    connection: AsyncConnection
    pk: int
    entries: int
    state: JsonObject

    async def pages(self, last: int) -> AsyncGenerator[list[StoredMessage | StoredChange]]:
        """The rows up to number `last`, in order, undone ones too."""
        for first in range(1, last + 1, PAGE):
            yield await _page(self.connection, self.pk, first, min(first + PAGE - 1, last))


async def _import(
    connection: AsyncConnection, session: ForeignSession, batches: EntryBatches
) -> ImportResult:
    await _wait_for_source(connection)
    inserted = await _insert_session(connection, session)
    is_new = inserted is not None
    row = inserted or await _locked(connection, session.key)
    if row.owner is not None:
        raise SessionBusyError
    writer = _Writer(connection, session.key, row, is_new=is_new)
    async with aclosing(batches()) as stream:
        async for batch in stream:
            failpoint("import.batch")
            await writer.add(batch)
    imported = ImportResult(
        is_new, writer.added, writer.existing, row.next_seq - 1 - writer.existing
    )
    if imported.continued and imported.added:  # raising rolls the transaction back
        raise SessionExistsError(
            "Both this session and its source have new events since the last import."
        )
    if not imported.continued:
        await writer.update(state=session.state, updated=readable_time(session.updated))
    return imported


async def _wait_for_source(connection: AsyncConnection) -> None:
    """Let the transaction be idle while the source is read, however slow that is."""
    if connection.dialect.name == "postgresql":
        await connection.execute(sa.text("set local idle_in_transaction_session_timeout = 0"))


async def _insert_session(
    connection: AsyncConnection, session: ForeignSession
) -> sa.Row[Any] | None:
    """Insert the session's row; None if it exists already, which stays as it is."""
    row = {
        **session.key.of_row,
        "public_id": new_id("ses"),
        "state": session.state,
        "created": readable_time(session.created),
        "updated": readable_time(session.updated),
        "last_activity": readable_time(session.updated),
    }
    insert = upsert(connection, sessions).on_conflict_do_nothing()
    return (await connection.execute(insert.returning(sessions), row)).one_or_none()


async def _locked(connection: AsyncConnection, key: SessionKey) -> sa.Row[Any]:
    return (
        await connection.execute(sa.select(sessions).where(key_is(key)).with_for_update())
    ).one()


class _Writer:
    """Adds entries to a locked session in bulk, with the effect of single appends."""

    def __init__(
        self, connection: AsyncConnection, key: SessionKey, row: sa.Row[Any], *, is_new: bool
    ) -> None:
        self.added = 0
        self.existing = 0
        self._connection = connection
        self._key = key
        self._pk: int = row.pk
        self._is_new = is_new
        self._counters = Counters.of(row)
        self._last_activity = row.last_activity
        self._rows = {messages: list[JsonObject](), state_changes: list[JsonObject]()}

    async def add(self, batch: Sequence[Entry]) -> None:
        """Write the entries of a batch that are not here yet."""
        fresh = batch if self._is_new else await self._unknown(batch)
        self.added += len(fresh)
        self.existing += len(batch) - len(fresh)
        for entry in fresh:
            if entry.rewind is not None:
                await self._undo(entry)
            if entry.blobs:
                await artifact_rows.save_blobs(self._connection, self._key, entry.blobs)
            self._add(entry)
        if fresh:
            await self._flush()

    async def _unknown(self, batch: Sequence[Entry]) -> list[Entry]:
        ids = [entry.event_id for entry in batch]
        stored_ids: set[str] = set()
        for table in (messages, state_changes):
            statement = sa.select(table.c.event_id).where(
                table.c.session_pk == self._pk, table.c.event_id.in_(ids)
            )
            stored_ids.update((await self._connection.execute(statement)).scalars())
        return [entry for entry in batch if entry.event_id not in stored_ids]

    def _add(self, entry: Entry) -> None:
        if entry.begins_turn(self._counters.invocation_id):
            self._last_activity = entry.created
        self._counters = advance(self._counters, entry)
        table, row = new_row(self._pk, entry, self._counters)
        self._rows[table].append(row)

    async def _undo(self, entry: Entry) -> None:
        """Mark the rows that a rewind undid. Its own event has the changes that it made."""
        await self._flush()
        await self.update()
        undone = await undo(self._connection, await _locked(self._connection, self._key), entry)
        if undone is not None:
            self._counters = undone.counters

    async def _flush(self) -> None:
        for table, rows in self._rows.items():
            if rows:
                await self._connection.execute(sa.insert(table), rows)
                rows.clear()

    async def update(self, **columns: Any) -> None:
        """Update the session's row to match its entries."""
        values = self._counters.columns | {"last_activity": self._last_activity} | columns
        await self._connection.execute(
            sa.update(sessions).where(sessions.c.pk == self._pk).values(values)
        )


async def write_state(
    connection: AsyncConnection, key: SessionKey, state: Mapping[str, Any], *, overwrite: bool
) -> None:
    """Write a user's state, or an app's (a key without a user); without `overwrite` only new."""
    scope = {"tenant": key.tenant, "app_name": key.app_name}
    if key.user_id:
        scope["user_id"] = key.user_id
    table = user_states if key.user_id else app_states
    statement = upsert(connection, table)
    if overwrite:
        statement = statement.on_conflict_do_update(
            index_elements=list(table.primary_key.columns), set_={"value": statement.excluded.value}
        )
    else:
        statement = statement.on_conflict_do_nothing()
    rows = [{**scope, "key": name, "value": state[name]} for name in sorted(state)]
    if rows:
        await connection.execute(statement, rows)


async def _page(
    connection: AsyncConnection, pk: int, first: int, last: int
) -> list[StoredMessage | StoredChange]:
    stored = await connection.execute(
        sa.select(*ROW).where(messages.c.session_pk == pk, messages.c.seq.between(first, last))
    )
    rows: list[StoredMessage | StoredChange] = [StoredMessage._make(row) for row in stored]
    if len(rows) <= last - first:  # the numbers in between are state changes
        columns = (state_changes.c.seq, state_changes.c.event_id)
        columns = (*columns, state_changes.c.invocation_id, state_changes.c.delta)
        changed = await connection.execute(
            sa.select(*columns).where(
                state_changes.c.session_pk == pk, state_changes.c.seq.between(first, last)
            )
        )
        rows += [StoredChange(*row) for row in changed]
    return sorted(rows, key=lambda row: row.seq)
