"""ADK's session service on lango's store."""

from __future__ import annotations

import contextvars
import logging
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, Self

from google.adk.events.event import Event
from google.adk.platform import uuid as platform_uuid
from google.adk.sessions.base_session_service import (
    BaseSessionService,
    GetSessionConfig,
    ListSessionsResponse,
)
from google.adk.sessions.session import Session

from lango.adk.compat.sessions import move_temp_state, replace_contents, update_state
from lango.adk.errors import as_adk_errors
from lango.adk.sessions.decode import EventsAdapter, message_of, moved_names
from lango.adk.sessions.encode import entry_of, split_state
from lango.adk.sessions.normalise import with_adk_roles
from lango.adk.sessions.session import SessionAdapter, StoreLink, link_of, ref_of
from lango.core.messages.history import effective_budget, unsafe_head
from lango.core.messages.messages import CONTROL, TOOL_ROLES, Message
from lango.core.values import storable_json
from lango.store.sessions.entries import (
    Appended,
    Entry,
    LoadedSession,
    SessionKey,
    SessionRef,
    StoredMessage,
    StoredSession,
)
from lango.store.sessions.listing import Page, SessionFilter, SessionSummary
from lango.store.sessions.load import NewestEvents
from lango.store.sessions.retained_rows import RetainedRows
from lango.store.sessions.store import SqlSessionStore

logger = logging.getLogger(__name__)

_whole: contextvars.ContextVar[bool] = contextvars.ContextVar("lango_whole_session", default=False)
_window_logged = False


class SessionServiceAdapter(BaseSessionService):
    """Sessions on PostgreSQL or SQLite, loaded within a token budget.

    `store` is a store or its URL. `token_budget` 0 means the default of 32,000, None the whole
    session. `root_agent_name` is the author of old rows that name none.
    """

    def __init__(
        self,
        store: SqlSessionStore | str,
        *,
        tenant: str = "",
        token_budget: int | None = 0,
        root_agent_name: str = "",
    ) -> None:
        replace_contents(with_adk_roles)
        self._owns_store = isinstance(store, str)
        self.store = SqlSessionStore(store) if isinstance(store, str) else store
        self.tenant = tenant
        self.token_budget = token_budget
        self.root_agent_name = root_agent_name

    async def __aenter__(self) -> Self:
        await self.store.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections, if this service opened the store."""
        if self._owns_store:
            await self.store.close()

    @asynccontextmanager
    async def whole_session(self) -> AsyncGenerator[None]:
        """Inside, sessions are loaded whole, for operations that need all events (a far rewind)."""
        token = _whole.set(True)
        try:
            yield
        finally:
            _whole.reset(token)

    def _key(self, app_name: str, user_id: str, session_id: str) -> SessionKey:
        return SessionKey(self.tenant, app_name, user_id, session_id).checked()

    async def create_session(
        self,
        *,
        app_name: str,
        user_id: str,
        state: dict[str, Any] | None = None,
        session_id: str | None = None,
    ) -> Session:
        """Create a session; its initial state is split over app, user and session."""
        key = self._key(
            app_name, user_id, platform_uuid.new_uuid() if session_id is None else session_id
        )
        with as_adk_errors():
            stored = await self.store.create(key, split_state(storable_json(state or {})))
        return self._session(LoadedSession(stored, [], whole=True), [])

    async def get_session(
        self,
        *,
        app_name: str,
        user_id: str,
        session_id: str,
        config: GetSessionConfig | None = None,
    ) -> Session | None:
        """The session with the newest events that fit the budget, or exactly those of `config`."""
        key = self._key(app_name, user_id, session_id)
        if config is not None and config != GetSessionConfig():
            recent = NewestEvents(config.num_recent_events, config.after_timestamp)
            loaded = await self.store.load_recent(key, recent)
        else:
            loaded = await self._load(key)
        if loaded is None:
            return None
        return self._session(loaded, await self._events(loaded))

    async def _load(self, key: SessionKey) -> LoadedSession | None:
        """The newest rows that fit the budget, with those that every load has."""
        loaded = await self.store.load(key, self._budget())
        return _safely_cut(loaded) if loaded and not loaded.whole else loaded

    def _budget(self) -> int | None:
        if _whole.get() or self.token_budget is None:
            return None
        return effective_budget(self.token_budget)

    async def _events(self, loaded: LoadedSession) -> list[Event]:
        names = moved_names(loaded.messages)
        blobs = await self.store.read_blobs(loaded.session.key, names) if names else {}
        return EventsAdapter(loaded.messages, self.root_agent_name, blobs).all()

    def _session(self, loaded: LoadedSession, events: list[Event]) -> SessionAdapter:
        stored = loaded.session
        session = SessionAdapter.model_construct(
            id=stored.key.session_id,
            app_name=stored.key.app_name,
            user_id=stored.key.user_id,
            state=merged_state(stored),
            events=events,
            last_update_time=stored.updated,
        )
        session.attach(StoreLink(stored.ref, loaded.messages, loaded.whole, self.store.database))
        return session

    async def append_event(self, session: Session, event: Event) -> Event:
        """Store the event, then add it to the session object: durable before ADK continues."""
        if event.partial:
            return event
        move_temp_state(self, session, event)
        clean, entry = entry_of(event)
        if entry is None:
            return event
        link = link_of(session)
        if entry.rewind is not None:
            first = link.first_seq_of(entry.rewind.before_invocation_id)
            entry = entry.with_rewind_from(first)
        with as_adk_errors():
            appended = await self._append(ref_of(session, link, self.tenant), entry)
        if not appended.duplicate or not any(stored.id == event.id for stored in session.events):
            self._show(session, clean, entry, appended)
        return event

    async def _append(self, ref: SessionRef, entry: Entry) -> Appended:
        return await self.store.append(ref, entry)

    def _show(self, session: Session, event: Event, entry: Entry, appended: Appended) -> None:
        """Update the session object to match the store."""
        if appended.state is not None:
            event.actions.state_delta = dict(appended.state)
        if appended.artifacts is not None:
            event.actions.artifact_delta = dict(appended.artifacts)
        update_state(self, session, event)
        session.last_update_time = event.timestamp
        if entry.state_only:
            return
        session.events.append(event)
        link_of(session).rows.append(_row(entry, appended.seq))

    async def list_sessions(
        self, *, app_name: str, user_id: str | None = None
    ) -> ListSessionsResponse:
        """Every session without its events, oldest first; `sessions` returns pages."""
        stored = await self.store.list_all(self.tenant, app_name, user_id)
        return ListSessionsResponse(
            sessions=[
                self._session(LoadedSession(session, [], whole=False), []) for session in stored
            ]
        )

    async def delete_session(self, *, app_name: str, user_id: str, session_id: str) -> None:
        """Delete a session with everything in it."""
        await self.store.delete(self._key(app_name, user_id, session_id))

    async def get_user_state(self, *, app_name: str, user_id: str) -> dict[str, Any]:
        """The user's state, keys without their prefix."""
        return await self.store.user_state(SessionKey(self.tenant, app_name, user_id, ""))

    async def sessions(
        self,
        *,
        app_name: str,
        user_id: str | None = None,
        title: str = "",
        cursor: str | None = None,
        limit: int = 50,
    ) -> Page[SessionSummary]:
        """A page of sessions for user interfaces, the last active first."""
        return await self.store.page(
            self.tenant,
            app_name,
            user_id,
            wanted=SessionFilter(title),
            cursor=cursor,
            limit=limit,
        )

    async def messages(
        self,
        *,
        app_name: str,
        user_id: str,
        session_id: str,
        before: int | None = None,
        after: int | None = None,
        limit: int = 50,
    ) -> list[tuple[int, Message]]:
        """A page of the history, in order and numbered: the newest, or before or after a number."""
        key = self._key(app_name, user_id, session_id)
        with as_adk_errors():
            rows = await self.store.messages(key, before=before, after=after, limit=limit)
        return [(row.seq, message_of(row)) for row in rows]


def merged_state(stored: StoredSession) -> dict[str, Any]:
    """Session, app and user state in one view, as ADK shows them."""
    state = dict(stored.state)
    state.update({f"app:{key}": value for key, value in stored.app_state.items()})
    state.update({f"user:{key}": value for key, value in stored.user_state.items()})
    return state


def _row(entry: Entry, seq: int) -> StoredMessage:
    """The row that an entry became."""
    return StoredMessage(
        seq=seq,
        event_id=entry.event_id,
        invocation_id=entry.invocation_id,
        role=entry.role,
        author=entry.author,
        content=entry.content,
        tool_calls=entry.tool_calls,
        tokens=entry.tokens,
        timestamp=entry.timestamp,
        event=entry.event,
        changes=entry.changes,
    )


def _safely_cut(loaded: LoadedSession) -> LoadedSession:
    """A cut history with a valid beginning; the open turn stays whole."""
    _log_window()
    first = next(_cut_rows(loaded), None)
    if first is None or (first.tool_calls is None and first.role not in TOOL_ROLES):
        return loaded
    talk = [row for row in _cut_rows(loaded) if row.role != CONTROL]
    unsafe = unsafe_head([message_of(row) for row in talk])
    if unsafe == 0:
        return loaded
    last_unsafe = talk[unsafe - 1].seq
    rows = [
        row for row in loaded.messages if row.seq <= loaded.window_after or row.seq > last_unsafe
    ]
    return replace(loaded, messages=rows)


def _cut_rows(loaded: LoadedSession) -> Iterator[StoredMessage]:
    """The rows that only the budget loaded, up to the open turn or the first pinned row."""
    pinned = RetainedRows(loaded.session.open_calls)
    for row in loaded.messages:
        if row.seq <= loaded.window_after:
            continue
        if row.seq >= loaded.session.turn_seq or row in pinned:
            return
        yield row


async def load_session(
    store: SqlSessionStore, key: SessionKey, token_budget: int | None = 0
) -> Session | None:
    """The session of a key, as `SessionServiceAdapter` loads it."""
    service = SessionServiceAdapter(
        store, tenant=key.tenant, token_budget=token_budget, root_agent_name=key.app_name
    )
    return await service.get_session(
        app_name=key.app_name, user_id=key.user_id, session_id=key.session_id
    )


def _log_window() -> None:
    global _window_logged  # log once per process
    if not _window_logged:
        _window_logged = True
        logger.info(
            "A session was loaded without its oldest events, to fit the token budget. They are "
            "still in the database; tools and callbacks see a shorter `session.events`."
        )
