"""ADK's own events of a turn, for clients of ADK's API: from its log and its session.

The log has the deltas, and says which event a worker has stored; the session has the whole events.
A whole event is sent when the log has reached it: no delta then arrives after its message.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import AsyncGenerator, Iterable, Iterator
from contextlib import aclosing
from typing import Final

from lango.adk.api.events import StoredEvent, all_json, partial_json, turn_events
from lango.adk.turn_events import TurnReader
from lango.core.turns.events import (
    ENDS,
    Cancelled,
    MessageCompleted,
    MessageDelta,
    ReasoningDelta,
    Started,
    error_data,
)
from lango.core.values import JsonObject
from lango.errors import TurnCancelledError
from lango.store.sessions.store import SqlSessionStore
from lango.store.turns.log import LoggedEvent
from lango.store.turns.rows import Turn, user_event_id
from lango.turns.log.replay import KNOWN_BY, name_of
from lango.turns.service import Turns

_DELTAS: Final = (MessageDelta.type, ReasoningDelta.type)
_ENDS: Final = frozenset(end.type for end in ENDS)


class AdkEvents:
    """The events of one turn as JSON in ADK's form, and how the turn ended."""

    def __init__(
        self, store: SqlSessionStore, turns: Turns, turn: Turn, *, app_state: bool
    ) -> None:
        self.error: JsonObject | None = None
        """The error of a turn that failed or was cancelled, once its events have been read."""
        self._store = store
        self._turns = turns
        self._turn = turn
        self._app_state = app_state
        self._stored = _StoredEvents(turn)

    async def read(self, *, partials: bool) -> AsyncGenerator[JsonObject]:
        """The events as they come, to the turn's end; with `partials`, its deltas as well."""
        deltas = _Deltas(self._turn)
        async with aclosing(self._turns.events(self._turn)) as log:
            async for logged in log:
                is_delta = logged.type in _DELTAS
                if is_delta and not partials:
                    continue
                if not is_delta or deltas.begins_message(logged):
                    self._stored.note(logged)
                    deltas.note(logged)
                    for event in await self._reached(logged):
                        yield event
                if is_delta:
                    for event in deltas.read(logged):
                        yield event

    async def _reached(self, logged: LoggedEvent) -> list[JsonObject]:
        """The stored events that the log has reached."""
        is_end = logged.type in _ENDS
        if is_end:
            self.error = logged.data.get("error")
            if logged.type == Cancelled.type:
                self.error = error_data(TurnCancelledError())
        if is_end or logged.type in KNOWN_BY or logged.type in _DELTAS:
            new = await turn_events(self._store, self._turn, self._stored.last)
            self._stored.add(new)
        events = [stored_event.event for stored_event in self._stored.take(everything=is_end)]
        return list(all_json(events, app_state=self._app_state))


class _StoredEvents:
    """Stored events that wait until the log has reached them, in order."""

    def __init__(self, turn: Turn) -> None:
        self.last: StoredEvent | None = None
        self._is_over = False  # the next turn of the invocation has begun
        self._message = user_event_id(turn.id)
        self._reader = TurnReader()
        self._waiting: deque[tuple[StoredEvent, list[tuple[str, str]]]] = deque()
        self._logged: Counter[tuple[str, str]] = Counter()

    def note(self, logged: LoggedEvent) -> None:
        """Take note of an event of the log."""
        if logged.type in KNOWN_BY:
            self._logged[name_of(logged.type, logged.data)] += 1

    def add(self, stored: Iterable[StoredEvent]) -> None:
        """Add events that are newly stored, except the turn's own message."""
        for stored_event in stored:
            self.last = stored_event
            is_message = stored_event.event.id.endswith(user_event_id(""))
            self._is_over |= is_message and stored_event.event.id != self._message
            if self._is_over:
                continue
            names = [
                name_of(event.type, event.data())
                for event in self._reader.read(stored_event.event)
                if event.type in KNOWN_BY
            ]
            if stored_event.event.id != self._message:
                self._waiting.append((stored_event, names))

    def take(self, *, everything: bool) -> Iterator[StoredEvent]:
        """Remove and return the events up to the first that the log has not reached."""
        while self._waiting:
            event, names = self._waiting[0]
            if not everything and any(not self._logged[name] for name in names):
                return
            self._waiting.popleft()
            yield event


class _Deltas:
    """Deltas as partial events; text that a lost worker's client has is not sent again.

    A partial event cannot be retracted. If the next attempt says something else, its whole event,
    which replaces the text, is the next that the client gets of the message.
    """

    def __init__(self, turn: Turn) -> None:
        self._turn = turn
        self._authors: dict[str, str] = {}
        self._sent: dict[tuple[str, str], str] = {}
        self._stale: dict[tuple[str, str], str] = {}  # by kind and author
        self._ahead: dict[tuple[str, str], _Repeat] = {}

    def begins_message(self, logged: LoggedEvent) -> bool:
        """Whether a delta is the first of its message."""
        return logged.data["message"] not in self._authors

    def note(self, logged: LoggedEvent) -> None:
        """Take note of an event that is no further delta of a message."""
        if logged.type == Started.type:
            for (kind, message), text in self._sent.items():
                if text:
                    self._stale[kind, self._authors[message]] = text
            self._sent.clear()
        elif logged.type == MessageCompleted.type:
            for kind in _DELTAS:
                self._sent.pop((kind, logged.data["message"]), None)
                self._stale.pop((kind, logged.data["author"]), None)

    def read(self, logged: LoggedEvent) -> Iterator[JsonObject]:
        """The partial event of a delta, unless the client has its text."""
        message, kind = str(logged.data["message"]), logged.type
        author = self._authors.setdefault(message, str(logged.data.get("author") or ""))
        text = self._new_text(kind, message, str(logged.data["text"]))
        if text:
            is_thought = kind == ReasoningDelta.type
            yield partial_json(
                self._turn, message, author, text, is_thought=is_thought, at=logged.at
            )

    def _new_text(self, kind: str, message: str, text: str) -> str:
        key = kind, message
        stale = kind, self._authors[message]
        if key not in self._sent and stale in self._stale:
            self._sent[key] = self._stale.pop(stale)  # what the client has of it
            self._ahead[key] = _Repeat(self._sent[key])
        if key in self._ahead:
            text = self._ahead[key].beyond(text)
        self._sent[key] = self._sent.get(key, "") + text
        return text


class _Repeat:
    """Compares an answer with the text that an earlier attempt has sent of it."""

    def __init__(self, earlier_text: str) -> None:
        self._earlier_text = earlier_text
        self._text = ""

    def beyond(self, text: str) -> str:
        """The part of the next text beyond the earlier text; none if the answer differs."""
        before = max(len(self._text), len(self._earlier_text))
        self._text += text
        return self._text[before:] if self._text.startswith(self._earlier_text) else ""
