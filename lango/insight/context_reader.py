"""Reads from the store which messages a session's model calls saw."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from lango.adk.models.convert import convert_messages
from lango.adk.sessions.decode import EventsAdapter, compaction_of, moved_names, scope_of
from lango.adk.sessions.service import load_session
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
    StoredSummary,
    StoredTalk,
    cut_of,
    newest_of,
    other_calls,
    request_messages,
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
        answers = [call.call for call in calls if call.kind == "answer"]
        latest = None
        if answers:
            latest = await self._view(await self._calls.attempts(self._key, answers[-1]))
        return SessionContext(
            latest, await self._preview(calls), other_calls(calls, answers[-1] if answers else "")
        )

    async def _view(self, attempts: Sequence[StoredModelCall]) -> ContextView:
        records = [attempt.call for attempt in attempts]
        talk = await self._sent(records[-1])
        summary = await self._summary(records[-1], talk)
        return view(
            records,
            await self._prompt(attempts[-1]),
            talk,
            await self._cut(records[-1], summary),
            self._text_room,
            summary,
        )

    async def _summary(self, call: ModelCall, talk: Sequence[StoredTalk]) -> StoredSummary | None:
        """The summary at the beginning of a request, if it had more messages than are stored."""
        if call.last_seq is None or call.sent <= len(request_messages(talk)):
            return None
        messages = await self._seen(call.last_seq)
        newest = await messages.since(call.last_seq)
        scope = scope_of(newest[0]) if newest else None
        return await _newest_of(messages, await messages.summaries(), scope)

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

    async def _cut(self, call: ModelCall, summary: StoredSummary | None) -> list[ContextCut]:
        """The messages the call did not see: summarised, cut from its request, or older."""
        if call.first_seq is None or call.last_seq is None:
            unnamed = ContextCut(None, None, call.left_out, None, call.why or "not_given")
            return [unnamed] if call.left_out else []
        messages = await self._seen(call.last_seq)
        cut: Sequence[StoredTalk] = ()
        if call.left_out:
            before = await self._talk(await messages.before(call.first_seq, call.left_out))
            cut = newest_of(before, call.left_out)
        summarised = [summary.replaces] if summary else []
        begin = (summary.replaces.last or 0) + 1 if summary else 0
        end = cut[0].number if cut else call.first_seq
        older = [*summarised, *_not_given(await messages.message_range(begin, end))]
        if not cut:
            return older
        return [*older, cut_of(cut, call.why or "not_given", counted=bool(older))]

    async def _preview(self, calls: Sequence[ModelCall]) -> ContextPreview:
        """The next call's history, loaded as ADK would load it."""
        outer_calls = [call for call in calls if call.first_seq is not None]  # not an inner agent's
        preview_basis = basis(outer_calls, await self._sent(outer_calls[-1]) if outer_calls else [])
        session = await load_session(self._store, self._key, self._token_budget)
        if session is None:
            raise SessionNotFoundError
        loaded = link_of(session).rows
        rows = [row for row in loaded if row.role != CONTROL]
        summary = await self._newest_summary(loaded)
        if summary is None:
            not_loaded = await self._not_loaded(rows)
        else:
            rows = [row for row in rows if row.seq > (summary.replaces.last or 0)]
            not_loaded = [summary.replaces]
        return preview(await self._talk(rows), preview_basis, not_loaded, self._text_room, summary)

    async def _newest_summary(self, rows: Sequence[StoredMessage]) -> StoredSummary | None:
        return await _newest_of(await self._seen(rows[-1].seq), rows) if rows else None

    async def _not_loaded(self, rows: Sequence[StoredMessage]) -> list[ContextCut]:
        if not rows:
            return []
        messages = await self._seen(rows[-1].seq)
        older = _not_given(await messages.message_range(0, rows[0].seq))
        since = await messages.message_range(rows[0].seq, _AT_THE_END)
        between = since.messages - len(rows) if since else 0
        if between <= 0:
            return older
        # A waiting call is loaded whatever its age, unlike the messages between it and the window.
        return [*older, ContextCut(None, None, between, None, "not_given")]

    async def _seen(self, last_seq: int) -> SeenMessages:
        ref = await self._store.locate(self._key)
        return SeenMessages(self._store.database, ref.pk or 0, last_seq)

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


async def _newest_of(
    seen_messages: SeenMessages, rows: Sequence[StoredMessage], scope: str | None = None
) -> StoredSummary | None:
    """The newest summary of the session, or of a task in it, with the messages that it replaces."""
    compactions = [
        (row, compaction)
        for row in rows
        if (compaction := compaction_of(row)) and scope_of(row) == scope
    ]
    if not compactions:
        return None
    row, compaction = compactions[-1]
    replaced = await seen_messages.message_range(0, row.seq, compaction.end_timestamp)
    messages = convert_messages([compaction.compacted_content])
    if replaced is None or not messages:
        return None
    figures = (replaced.first, replaced.last, replaced.messages, replaced.tokens)
    return StoredSummary(row.seq, messages[0], ContextCut(*figures, "summarised"))


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
