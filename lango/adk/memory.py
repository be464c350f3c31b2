"""ADK's memory service on the session store's database."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from hashlib import sha256
from math import isfinite
from typing import Any, Final

from google.adk.events.event import Event
from google.adk.memory.base_memory_service import BaseMemoryService, SearchMemoryResponse
from google.adk.memory.memory_entry import MemoryEntry
from google.adk.sessions.session import Session
from google.genai import types

from lango.adk.errors import as_adk_errors
from lango.adk.sessions.encode import CONTENT_ROLES
from lango.adk.sessions.session import link_of
from lango.core.ids import MAX_SESSION_KEY_BYTES, check_id, check_key, fitted
from lango.core.values import storable_json, storable_text
from lango.providers.embeddings import Embedder
from lango.providers.registry import resolve_embedder
from lango.store.memory.store import FoundMemory, NewMemory, SqlMemoryStore
from lango.store.memory.vectors import QueryVector
from lango.store.sessions.entries import SessionKey, SessionRef, readable_time
from lango.store.sessions.store import SqlSessionStore

MAX_RESULTS: Final = 10
_MAX_EVENT_ID: Final = 500
"""Bytes of an event's id: with the names of its session, it fits a unique key."""
_MAX_PK: Final = 2**63 - 1


class SqlMemoryService(BaseMemoryService):
    """Memory beside the sessions: `store` is a session store or its URL.

    Set `requires_session` if the sessions are in the same store: events of a missing or deleted
    session are then refused, and no entry outlives its session. A search returns up to `limit`
    entries. With `embeddings`, the embedding model of an app whose workers use the same, it also
    finds texts that say it in other words.
    """

    def __init__(
        self,
        store: SqlSessionStore | str,
        *,
        tenant: str = "",
        requires_session: bool = False,
        limit: int = MAX_RESULTS,
        embeddings: Embedder | str | None = None,
    ) -> None:
        self._owns_store = isinstance(store, str)
        self.store = SqlSessionStore(store) if isinstance(store, str) else store
        self.tenant = tenant
        self.requires_session = requires_session
        self.limit = limit
        self._owns_embedder = isinstance(embeddings, str)
        self.embedder = resolve_embedder(embeddings) if isinstance(embeddings, str) else embeddings
        self._memories = SqlMemoryStore(self.store.database)

    async def close(self) -> None:
        """Close the connections that this service opened."""
        if self._owns_embedder and self.embedder is not None:
            await self.embedder.close()
        if self._owns_store:
            await self.store.close()

    def _user(self, app_name: str, user_id: str) -> SessionKey:
        check_id("app name", app_name)
        check_id("user id", user_id)
        check_key("user id", self.tenant, app_name, user_id, room=MAX_SESSION_KEY_BYTES)
        return SessionKey(self.tenant, app_name, user_id, "")

    @property
    def _added_in(self) -> SessionRef | None:
        """The session whose turn uses this service; None outside of one."""
        return None

    def _ref(self, key: SessionKey) -> SessionRef:
        """The session of a key, which is looked up by its name."""
        return SessionRef(key)

    async def add_session_to_memory(self, session: Session) -> None:
        """Remember a session: all its stored messages, or the events of one stored elsewhere."""
        stored = self._stored(session)
        if stored is not None:
            with as_adk_errors():
                await self._memories.add_session(stored)
            return
        await self.add_events_to_memory(
            app_name=session.app_name,
            user_id=session.user_id,
            events=session.events,
            session_id=session.id,
        )

    def _stored(self, session: Session) -> SessionRef | None:
        """The session of an object that was loaded from this store, for this tenant; else None."""
        link = link_of(session)
        if link.ref is None or not self.store.database.is_same(link.database):
            return None
        return link.ref if link.ref.key.tenant == self.tenant else None

    async def add_events_to_memory(
        self,
        *,
        app_name: str,
        user_id: str,
        events: Sequence[Event],
        session_id: str | None = None,
        custom_metadata: Mapping[str, object] | None = None,
    ) -> None:
        """Remember the texts of events, each once."""
        user = self._user(app_name, user_id)
        key = SessionKey(*user.columns[:3], session_id).checked() if session_id else user
        metadata = _metadata(custom_metadata)
        await self._add(
            self._ref(key),
            [
                NewMemory(
                    event_id=_event_id(event.id or _digest(event.author, event.timestamp, text)),
                    author=storable_text(event.author),
                    role="user" if event.author == "user" else "assistant",
                    timestamp=event.timestamp if isfinite(event.timestamp) else 0.0,
                    text=text,
                    metadata=metadata,
                )
                for event in events
                if not event.partial and (text := _text(event.content))
            ],
        )

    async def add_memory(
        self,
        *,
        app_name: str,
        user_id: str,
        memories: Sequence[MemoryEntry],
        custom_metadata: Mapping[str, object] | None = None,
    ) -> None:
        """Remember texts of a user that belong to no session; an equal one is stored once."""
        await self._add(
            SessionRef(self._user(app_name, user_id)),
            [
                NewMemory(
                    event_id=_event_id(entry.id or _digest(entry.author, entry.timestamp, text)),
                    author=storable_text(entry.author or ""),
                    role="assistant" if entry.content.role == "model" else "user",
                    timestamp=_seconds(entry.timestamp),
                    text=text,
                    metadata=_metadata({**entry.custom_metadata, **(custom_metadata or {})}),
                )
                for entry in memories
                if (text := _text(entry.content))
            ],
        )

    async def _add(self, ref: SessionRef, entries: Sequence[NewMemory]) -> None:
        with as_adk_errors():
            await self._memories.add(
                ref,
                entries,
                requires_session=self.requires_session,
                added_in=self._added_in,
            )

    async def search_memory(
        self, *, app_name: str, user_id: str, query: str
    ) -> SearchMemoryResponse:
        """The entries of a user that share words or meaning with the query, the best first."""
        user = self._user(app_name, user_id)
        vector = await self._vector(query)
        memories = await self._memories.search(user, query, self.limit, vector=vector)
        return SearchMemoryResponse(memories=[_entry(memory) for memory in memories])

    async def _vector(self, query: str) -> QueryVector | None:
        """The embedding of a query, if there is a model and the database can compare them."""
        embedder = self.embedder
        if embedder is None or not await self._memories.vectors.are_supported():
            return None
        vector = await embedder.embed_query(query)
        return None if vector is None else QueryVector(embedder.name, vector)

    async def delete_memory(
        self, *, app_name: str, user_id: str, memory_id: str | None = None
    ) -> None:
        """Delete an entry by the id that a search returned; a missing one is no error."""
        pk = int(memory_id) if memory_id and memory_id.isascii() and memory_id.isdigit() else 0
        if 0 < pk <= _MAX_PK:
            user = self._user(app_name, user_id)
            await self._memories.delete(user.tenant, pk, app_name=app_name, user_id=user_id)

    async def delete_all_memories(self, *, app_name: str, user_id: str) -> int:
        """Delete all entries of a user in an app; returns their number."""
        return await self._memories.delete_all(self._user(app_name, user_id))


def _texts(content: types.Content | None) -> Iterator[str]:
    for part in (content and content.parts) or ():
        if part.text and not part.thought:
            yield part.text


def _text(content: types.Content | None) -> str:
    """The text of a content, without thoughts, as a message stores it."""
    return storable_text("\n".join(_texts(content)))


def _digest(author: str | None, timestamp: object, text: str) -> str:
    """A name for a text that has none: the same text gets the same name."""
    parts = f"{author}\0{timestamp}\0{text}".encode(errors="surrogatepass")
    return sha256(parts).hexdigest()


def _event_id(text: str) -> str:
    return fitted(storable_text(text), _MAX_EVENT_ID)


def _metadata(metadata: Mapping[str, object] | None) -> dict[str, Any] | None:
    return storable_json(dict(metadata)) if metadata else None


def _seconds(timestamp: str | None) -> float:
    """The time of an entry; now if it has none that can be read."""
    try:
        return datetime.fromisoformat(timestamp or "").timestamp()
    except (ValueError, OverflowError):
        return time.time()


def _entry(memory: FoundMemory) -> MemoryEntry:
    source = {"session_id": memory.session_id} if memory.session_id else {}
    return MemoryEntry(
        id=str(memory.pk),
        content=types.Content(
            role=CONTENT_ROLES[memory.role], parts=[types.Part(text=memory.text)]
        ),
        author=memory.author or None,
        timestamp=readable_time(memory.timestamp).isoformat(timespec="seconds"),
        custom_metadata={**(memory.metadata or {}), **source},
    )
