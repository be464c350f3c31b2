"""Rebuilds events of a turn from its session when the turn's log lacks them.

A log lacks what a worker stored in the session but did not log before it died. A trimmed log lacks
everything.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence, Set
from typing import Final, NamedTuple

from lango.adk.durable.closing import unfinished
from lango.adk.sessions.service import load_session
from lango.adk.turn_events import TurnReader
from lango.core.turns.events import (
    AgentChanged,
    ApprovalRequired,
    CredentialRequired,
    Event,
    MessageCompleted,
    MessagePart,
    MessageReset,
    ToolFinished,
    ToolStarted,
)
from lango.core.values import JsonObject
from lango.store.sessions.store import SqlSessionStore
from lango.store.turns.log import LoggedEvent
from lango.store.turns.rows import Turn, user_event_id

KNOWN_BY: Final[dict[str, str]] = {
    MessageCompleted.type: "message",
    MessagePart.type: "message",
    ToolStarted.type: "call",
    ToolFinished.type: "call",
    ApprovalRequired.type: "approval",
    CredentialRequired.type: "credential",
    AgentChanged.type: "agent",
}
"""The event types that can be rebuilt, and the field that identifies each event."""


class StoredTurn(NamedTuple):
    """What a session holds of a turn."""

    events: list[Event]
    messages: frozenset[str]  # ids of whole messages, also of those without text


async def stored_turn(store: SqlSessionStore, turn: Turn, *, full_history: bool) -> StoredTurn:
    """What a turn's session holds of it. `full_history` reads old history too."""
    session = await load_session(store, turn.session, None if full_history else 0)
    reader, events, has_begun = TurnReader(), list[Event](), False
    messages: set[str] = set()
    for event in session.events if session else ():
        if event.id == user_event_id(turn.id):
            has_begun = True
            events += reader.read(event)
        elif has_begun and event.id.endswith(user_event_id("")):
            break
        elif has_begun and event.invocation_id == turn.invocation_id and not event.interrupted:
            messages.add(event.id)
            events += reader.read(event)
    return StoredTurn([e for e in events if e.type in KNOWN_BY], frozenset(messages))


def missing_events(logged: Sequence[LoggedEvent], stored: Iterable[Event]) -> list[Event]:
    """The stored events that a log lacks, in order."""
    logged_names = Counter(name_of(event.type, event.data) for event in logged)
    missing: list[Event] = []
    for event in stored:
        name = name_of(event.type, event.data())
        if logged_names[name] > 0:
            logged_names[name] -= 1
        else:
            missing.append(event)
    return missing


def resets(
    logged: Iterable[LoggedEvent], missing: Iterable[Event], stored: Set[str] = frozenset()
) -> list[Event]:
    """Resets for messages that neither the log, nor the missing events, nor the session complete.

    The log does not show that a message ended which has only thoughts and tool calls: `stored`
    are the ids of the whole messages in the session.
    """
    completed = {event.message for event in missing if isinstance(event, MessageCompleted)} | stored
    return [MessageReset(message) for message in unfinished(logged) if message not in completed]


def name_of(kind: str, data: JsonObject) -> tuple[str, str]:
    """The type and id that identify an event; a message's id is that of its session event."""
    if kind in (MessageCompleted.type, MessagePart.type) and data.get("event"):
        return kind, str(data["event"])
    return kind, str(data.get(KNOWN_BY.get(kind, ""), ""))
