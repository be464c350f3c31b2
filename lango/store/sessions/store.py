"""The session store: create, load, append, list and delete."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Final, Self, cast

import sqlalchemy as sa

from lango.core.failpoints import failpoint
from lango.core.ids import check_id, new_id
from lango.core.values import JsonObject, json_text, json_value
from lango.errors import SessionExistsError
from lango.store import users
from lango.store.credentials.store import SqlCredentialStore
from lango.store.db.clock import NOW
from lango.store.db.database import POOL_OVERFLOW, POOL_SIZE, Database
from lango.store.db.engines import POOL_TIMEOUT
from lango.store.db.retry import is_duplicate, retrying
from lango.store.db.statement import CoreTransaction, Prepared, Transaction
from lango.store.files import rows as artifact_rows
from lango.store.files.storage import loaded, stored_entry
from lango.store.schema.tables import sessions
from lango.store.sessions import append as appending
from lango.store.sessions import listing, statements
from lango.store.sessions import load as loading
from lango.store.sessions.delete import delete_session
from lango.store.sessions.entries import (
    NO_CHANGE,
    Appended,
    Entry,
    LoadedSession,
    SessionKey,
    SessionRef,
    StateChange,
    StoredMessage,
    StoredSession,
)
from lango.store.sessions.listing import ANY, Page, SessionFilter, SessionSummary
from lango.store.sessions.load import NewestEvents, key_is
from lango.store.users import DeletedData

_BRIEF_BUDGET: Final = 64_000
"""Tokens of a window up to which SQLite reads it on the event loop's own thread: milliseconds."""


class SqlSessionStore:
    """Sessions on PostgreSQL (`postgresql://…`) or SQLite (`sqlite:///file.db`).

    Every operation may be repeated after a fault, and retries by itself if the fault is transient.
    `pooled`: the URL leads to PgBouncer in transaction mode, `direct_url` to the database itself.
    `credential_keys` (each 32 bytes in base64) encrypt the credentials of users for tools: the
    first one encrypts, all decrypt. OAuth providers send browsers back to `public_url`, the address
    of `lango serve`. `objects` is the URL of an object store, which then has the bytes of files:
    `s3://bucket/prefix`, `gs://`, `az://` or `file:///folder`.
    """

    def __init__(
        self,
        url: str,
        *,
        schema: str | None = None,
        pool_size: int = POOL_SIZE,
        pool_overflow: int = POOL_OVERFLOW,
        pool_timeout: float = POOL_TIMEOUT,
        pooled: bool = False,
        direct_url: str | None = None,
        credential_keys: Sequence[str] = (),
        public_url: str | None = None,
        objects: str | None = None,
    ) -> None:
        self.database = Database(
            url,
            schema=schema,
            pool_size=pool_size,
            pool_overflow=pool_overflow,
            pool_timeout=pool_timeout,
            pooled=pooled,
            direct_url=direct_url,
            objects=objects,
        )
        self.credentials = SqlCredentialStore(self.database, credential_keys, public_url)

    async def open(self) -> None:
        """Connect and check the schema now rather than at the first use."""
        await retrying(self.database.open)

    async def check(self) -> None:
        """Raise unless the database answers now, and has the schema of this version."""
        await self.database.check()

    async def check_writes(self) -> None:
        """Raise unless the database takes a write now: its disk may be full, or it read-only."""
        await self.database.check_writes()

    async def close(self) -> None:
        """Close every connection."""
        await self.database.close()

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def create(
        self,
        key: SessionKey,
        state: StateChange | None = None,
        title: str = "",
        *,
        public_id: str | None = None,
    ) -> StoredSession:
        """Create a session; SessionExistsError if its id is taken.

        With the same `public_id`, a repeated call returns the existing session.
        """
        key.checked()
        key.check_state(state or NO_CHANGE)
        public_id = public_id or new_id("ses")  # a retry recognises its own work by it
        state = state or StateChange()
        if not (self.database.is_sqlite or state.app or state.user):
            created = await retrying(partial(self._create_at_once, key, public_id, state, title))
            if created is not None:
                return created
        return await self.database.transact(
            create_session, key, public_id, state, title, session=key
        )

    async def _create_at_once(
        self, key: SessionKey, public_id: str, state: StateChange, title: str
    ) -> StoredSession | None:
        """Create a session in one round trip; None if its name or its public id is taken."""
        names = (key.tenant, key.app_name, key.user_id, key.session_id)
        session_state = json_text(dict(state.session))
        rows = await self.database.fetch(statements.CREATE, *names, public_id, session_state, title)
        return loading.from_header(key, json_value(rows[0][0])) if rows else None

    async def load(self, key: SessionKey, budget: int | None) -> LoadedSession | None:
        """The newest rows within a token budget (None: all), with those that are always loaded."""

        async def once() -> LoadedSession | None:
            loaded = await self._load(key, budget)
            if loaded is None or loaded.whole or not loaded.session.open_calls:
                return loaded
            async with self.database.snapshot() as connection:
                return await loading.with_pinned(connection, loaded)

        return await retrying(once)

    async def _load(self, key: SessionKey, budget: int | None) -> LoadedSession | None:
        """The window alone."""
        if not self.database.is_sqlite:
            names = (key.tenant, key.app_name, key.user_id, key.session_id)
            rows = await self.database.fetch(statements.LOAD, *names, budget)
            return loading.from_rows(key, rows)
        if budget is not None and budget <= _BRIEF_BUDGET:
            async with self.database.brief_snapshot() as transaction:
                return await loading.load_window(transaction, key, budget)
        async with self.database.snapshot() as connection:
            return await loading.load_window(CoreTransaction(connection), key, budget)

    async def load_recent(self, key: SessionKey, recent: NewestEvents) -> LoadedSession | None:
        """Exactly what a GetSessionConfig asks for."""
        return await self.database.read(loading.load_recent, key, recent)

    async def append(self, ref: SessionRef, entry: Entry, epoch: int | None = None) -> Appended:
        """Append an entry; idempotent by its event id."""
        check_id("event id", entry.event_id)
        ref.key.check_state(entry.state)
        located = ref if ref.pk is not None else await self.locate(ref.key)
        entry = await stored_entry(self.database, ref.key.tenant, entry)
        failpoint("append.before")

        async def once() -> Appended:
            async with self.database.queue_of(located.key):
                return await self._append(located, entry, epoch)

        appended = await retrying(once)
        failpoint("append.after")
        return appended

    async def _append(self, ref: SessionRef, entry: Entry, epoch: int | None) -> Appended:
        if self.database.is_sqlite or not entry.is_plain:
            return await self._append_in_transaction(ref, entry, epoch)
        try:
            rows = await self.database.fetch(*append_call(ref, entry, epoch))
        except Exception as error:
            if not is_duplicate(error):
                raise
            rows = []
        if rows:
            return Appended(rows[0]["seq"])
        return await self._why_not_appended(ref, entry, epoch)

    async def _why_not_appended(self, ref: SessionRef, entry: Entry, epoch: int | None) -> Appended:
        rows = await self.database.fetch(
            statements.WHY_NOT_APPENDED, ref.pk, ref.key.tenant, entry.event_id
        )
        if not rows:
            raise appending.deleted(ref, epoch)
        if rows[0]["seq"] is not None:
            return Appended(rows[0]["seq"], duplicate=True)
        appending.check_writer(rows[0]["epoch"], rows[0]["owner"], epoch)
        return await self._append_in_transaction(ref, entry, epoch)

    async def _append_in_transaction(
        self, ref: SessionRef, entry: Entry, epoch: int | None
    ) -> Appended:
        if self.database.is_sqlite and not entry.is_long:
            async with self.database.transaction() as transaction:
                return await appending.append(transaction, ref, entry, epoch)
        async with self.database.begin(is_long=entry.is_long) as connection:
            return await appending.append(CoreTransaction(connection), ref, entry, epoch)

    async def read_blobs(self, key: SessionKey, names: Sequence[str]) -> dict[str, bytes]:
        """The bytes that were moved out of events, by name."""
        return await loaded(
            self.database, await self.database.read(artifact_rows.read_blobs, key, names)
        )

    async def locate(self, key: SessionKey) -> SessionRef:
        """A session by its key; SessionNotFoundError if there is none."""
        statement = sa.select(sessions.c.pk).where(key_is(key))
        pk = await self.database.read(lambda connection: connection.scalar(statement))
        if pk is None:
            raise appending.missing(SessionRef(key))
        return SessionRef(key, pk)

    async def user_state(self, key: SessionKey) -> JsonObject:
        """The user's state, by a key whose session id does not matter."""
        return await self.database.read(loading.read_user_state, key)

    async def list_all(
        self, tenant: str, app_name: str, user_id: str | None
    ) -> list[StoredSession]:
        """Every session with its state, the least recently updated first, unpaged, as in ADK."""
        return await self.database.read(
            partial(listing.list_all, tenant=tenant, app_name=app_name, user_id=user_id)
        )

    async def page(
        self,
        tenant: str,
        app_name: str | Sequence[str],
        user_id: str | None = None,
        *,
        wanted: SessionFilter = ANY,
        cursor: str | None = None,
        limit: int = 50,
    ) -> Page[SessionSummary]:
        """A page of the sessions of an app, or of several, the last active first."""
        return await listing.list_page(
            self.database,
            tenant=tenant,
            app_names=[app_name] if isinstance(app_name, str) else app_name,
            user_id=user_id,
            session_filter=wanted,
            cursor=cursor,
            limit=limit,
        )

    async def app_names(self, tenant: str) -> list[str]:
        """The apps in which a tenant has sessions."""
        return await self.database.read(listing.app_names, tenant)

    async def find(self, tenant: str, user_id: str | None, public_id: str) -> SessionSummary:
        """A session by its public id; SessionNotFoundError also if it is not the user's."""
        of_user = {} if user_id is None else {"user_id": user_id}
        return await listing.find(self.database, tenant=tenant, public_id=public_id, **of_user)

    async def summary(self, key: SessionKey) -> SessionSummary:
        """A session's entry in a list; SessionNotFoundError if there is none."""
        return await listing.find(self.database, **key.of_row)

    async def messages(
        self,
        key: SessionKey,
        *,
        before: int | None = None,
        after: int | None = None,
        limit: int = 50,
    ) -> list[StoredMessage]:
        """A page of messages in order; control rows and undone ones are not shown."""
        ref = await self.locate(key)
        return await self.database.read(
            partial(listing.page_messages, pk=ref.pk or 0, before=before, after=after, limit=limit)
        )

    async def delete(self, key: SessionKey, *, public_id: str | None = None) -> None:
        """Delete a session with all its data; a missing one is no error.

        With `public_id`, a newer session of the same name is not deleted.
        """
        condition = key_is(key)
        if public_id is not None:
            condition &= sessions.c.public_id == public_id
        await self.database.write(delete_session, key, condition, session=key, is_long=True)

    async def delete_user(
        self, tenant: str, user_id: str, app_name: str | None = None
    ) -> DeletedData:
        """Delete all data of a user in an app, or in all apps of the tenant.

        Sessions with all their data, the user's state, artifacts and memory; running turns of the
        sessions are stopped. API keys that name the user stay: see `KeyStore.revoke`.
        """
        apps = (
            [app_name]
            if app_name is not None
            else await self.database.read(users.apps_of_user, tenant, user_id)
        )
        deleted = DeletedData()
        for app in apps:
            deleted += await users.delete_user(self.database, SessionKey(tenant, app, user_id, ""))
        return deleted

    async def rename(self, key: SessionKey, title: str) -> None:
        """Set the title of a session."""
        update = sa.update(sessions).where(key_is(key))
        renamed = update.values(title=title).returning(sessions.c.pk)
        pk = await self.database.write(lambda connection: connection.scalar(renamed), session=key)
        if pk is None:
            raise appending.missing(SessionRef(key))


_CREATE: Final = Prepared(
    sa.insert(sessions).values(created=NOW, updated=NOW, last_activity=NOW).returning(sessions.c.pk)
)


async def create_session(
    transaction: Transaction,
    key: SessionKey,
    public_id: str,
    state: StateChange,
    title: str = "",
    parent_pk: int | None = None,
) -> StoredSession:
    """Write a new session in a transaction; a retry recognises its own by the public id."""
    existing = await loading.read_session(transaction, key)
    if existing is not None:
        if existing[0].public_id == public_id:
            return existing[0]
        raise SessionExistsError(f"Session with id {key.session_id} already exists.")
    row: dict[str, Any] = {
        **key.of_row,
        "public_id": public_id,
        "parent_pk": parent_pk,
        "state": dict(state.session),
        "title": title,
    }
    try:
        await transaction.all(_CREATE, **row)
    except Exception as error:
        if not is_duplicate(error):
            raise
        # Another transaction was faster.
        raise SessionExistsError(f"Session with id {key.session_id} already exists.") from error
    await appending.write_shared_states(transaction, SessionRef(key), state)
    created = await loading.read_session(transaction, key)
    return cast("tuple[StoredSession, object]", created)[0]


def append_call(ref: SessionRef, entry: Entry, epoch: int | None) -> tuple[Any, ...]:
    """The append statement that fits the entry, with its arguments."""
    state = entry.state
    shared = bool(state.app or state.user)
    arguments: list[Any] = [
        ref.pk,
        ref.key.tenant,
        entry.tokens,
        int(entry.counts),
        entry.invocation_id,
        entry.created,
        epoch,
        entry.event_id,
    ]
    if entry.state_only:
        arguments.append(entry.changes)
    else:
        arguments += [entry.timestamp, entry.role, entry.author, entry.content]
        arguments += [entry.tool_calls, entry.event, entry.changes]
    if state.session:
        arguments.append(json_text(state.session))
    if shared:
        arguments += [
            ref.key.app_name,
            ref.key.user_id,
            json_text(state.app),
            json_text(state.user),
        ]
    return statements.APPEND[entry.state_only, bool(state.session), shared], *arguments
