"""Reads from the store which messages a session's model calls saw."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from lango.adk.models.convert import convert_messages
from lango.adk.sessions.decode import EventsAdapter, moved_names
from lango.adk.sessions.service import SessionServiceAdapter
from lango.adk.sessions.session import link_of
from lango.core.context.model_calls import ModelCall
from lango.core.messages.messages import CONTROL
from lango.errors import ModelCallNotFoundError, SessionNotFoundError
from lango.insight.context import (
    TEXT_ROOM,
    ContextCut,
    ContextPreview,
    ContextView,
    Prompt,
    SessionContext,
    StoredTalk,
    cut_of,
    earlier_calls,
    newest_of,
    view,
)
from lango.insight.preview import basis, preview
from lango.store.insight.context import MessageRange, SeenMessages
from lango.store.model_calls import ModelCallStore, StoredModelCall
from lango.store.sessions.entries import SessionKey, StoredMessage
from lango.store.sessions.store import SqlSessionStore

_REMEMBERED: Final = 50
"""Attempts that the preview is based on and that are listed."""
_AT_THE_END: Final = 1 << 62


class ContextReader:
    """Reads the contexts of one session.

    `text_room` limits the characters of each text; None means no limit. `token_budget` is the
    budget of the session's agent: the preview loads as much.
    """

    def __init__(
        self,
        store: SqlSessionStore,
        key: SessionKey,
        *,
        text_room: int | None = TEXT_ROOM,
        token_budget: int | None = 0,
    ) -> None:
        self._store = store
        self._token_budget = token_budget
        self._key = key
        self._text_room = text_room
        self._calls = ModelCallStore(store.database)

    async def call(self, call: str) -> SessionContext:
        """The context of a call; ModelCallNotFoundError if the session has no such call."""
        attempts = await self._calls.attempts(self._key, call)
        if not attempts:
            raise ModelCallNotFoundError
        return SessionContext(await self._view(attempts))

    async def newest(self) -> SessionContext:
        """The context of the newest call, if any, and a preview of the next one."""
        stored = await self._calls.of_session(self._key, limit=_REMEMBERED)
        calls = [stored_call.call for stored_call in stored[::-1]]
        seen = None
        if calls:
            seen = await self._view(await self._calls.attempts(self._key, calls[-1].call))
        return SessionContext(seen, await self._preview(calls), earlier_calls(calls))

    async def _view(self, attempts: Sequence[StoredModelCall]) -> ContextView:
        records = [attempt.call for attempt in attempts]
        return view(
            records,
            await self._prompt(attempts[-1]),
            await self._sent(records[-1]),
            await self._cut(records[-1]),
            self._text_room,
        )

    async def _prompt(self, stored: StoredModelCall) -> Prompt:
        hashes = (stored.system_hash, stored.tools_hash)
        texts = [
            None if hashed is None else await self._calls.prompt_part(self._key.tenant, hashed)
            for hashed in hashes
        ]
        return Prompt(*texts)

    async def _sent(self, call: ModelCall) -> list[StoredTalk]:
        if call.first_seq is None or call.last_seq is None:
            return []
        return await self._talk(await (await self._seen(call.last_seq)).since(call.first_seq))

    async def _cut(self, call: ModelCall) -> list[ContextCut]:
        """The messages the call did not see: cut from its request, or older than that."""
        if call.first_seq is None or call.last_seq is None:
            unnamed = ContextCut(None, None, call.left_out, None, call.why or "not_given")
            return [unnamed] if call.left_out else []
        seen = await self._seen(call.last_seq)
        cut: Sequence[StoredTalk] = ()
        if call.left_out:
            before = await self._talk(await seen.before(call.first_seq, call.left_out))
            cut = newest_of(before, call.left_out)
        older = _not_given(await seen.message_range(0, cut[0].number if cut else call.first_seq))
        if not cut:
            return older
        return [*older, cut_of(cut, call.why or "not_given", counted=bool(older))]

    async def _preview(self, calls: Sequence[ModelCall]) -> ContextPreview:
        """The next call's history, loaded as ADK would load it."""
        known = [call for call in calls if call.first_seq is not None]  # not an inner agent's
        by = basis(known, await self._sent(known[-1]) if known else [])
        service = SessionServiceAdapter(
            self._store, tenant=self._key.tenant, token_budget=self._token_budget
        )
        session = await service.get_session(
            app_name=self._key.app_name,
            user_id=self._key.user_id,
            session_id=self._key.session_id,
        )
        if session is None:
            raise SessionNotFoundError
        rows = [row for row in link_of(session).rows if row.role != CONTROL]
        not_loaded = await self._not_loaded(rows)
        return preview(await self._talk(rows), by, not_loaded, self._text_room)

    async def _not_loaded(self, rows: Sequence[StoredMessage]) -> list[ContextCut]:
        if not rows:
            return []
        seen = await self._seen(rows[-1].seq)
        older = _not_given(await seen.message_range(0, rows[0].seq))
        since = await seen.message_range(rows[0].seq, _AT_THE_END)
        between = since.messages - len(rows) if since else 0
        if between <= 0:
            return older
        # A waiting call is loaded whatever its age, unlike the messages between it and the window.
        return [*older, ContextCut(None, None, between, None, "not_given")]

    async def _seen(self, upto: int) -> SeenMessages:
        ref = await self._store.locate(self._key)
        return SeenMessages(self._store.database, ref.pk or 0, upto)

    async def _talk(self, rows: Sequence[StoredMessage]) -> list[StoredTalk]:
        """Rows converted as for a request; rows without content are skipped."""
        names = moved_names(rows)
        blobs = await self._store.read_blobs(self._key, names) if names else {}
        talk: list[StoredTalk] = []
        for row, event in zip(rows, EventsAdapter(rows, blobs=blobs).all(), strict=True):
            messages = convert_messages([event.content] if event.content else [])
            if messages:
                talk.append(
                    StoredTalk(row.seq, row.invocation_id, row.role, row.author, tuple(messages))
                )
        return talk


def _not_given(message_range: MessageRange | None) -> list[ContextCut]:
    if message_range is None:
        return []
    cut = ContextCut(
        message_range.first,
        message_range.last,
        message_range.messages,
        message_range.tokens,
        "not_given",
    )
    return [cut]
