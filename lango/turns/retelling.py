"""Events of a turn told again from the session, which knows them when the log does not.

A log can lack what a worker stored and did not live to tell, and a log that was trimmed lacks all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from lango.adk.session_service import SessionServiceAdapter
from lango.adk.turn_events import TurnReader
from lango.core.turns import (
    AgentChanged,
    ApprovalRequired,
    Event,
    MessageCompleted,
    MessageDelta,
    MessageReset,
    ThoughtDelta,
    ToolFinished,
    ToolStarted,
)
from lango.core.values import JsonObject
from lango.store.sessions import SqlSessionStore
from lango.store.turn_log import LoggedEvent, TurnLog
from lango.store.turn_rows import Turn

_KNOWN_BY: Final[dict[str, str]] = {
    MessageCompleted.type: "message",
    ToolStarted.type: "call",
    ToolFinished.type: "call",
    ApprovalRequired.type: "approval",
    AgentChanged.type: "agent",
}
"""What is told again, and the field by which it is known."""
_DELTAS: Final = (MessageDelta.type, ThoughtDelta.type)
_OVER: Final = (MessageCompleted.type, MessageReset.type)
USER_EVENT: Final = "{turn}.user"
"""The id of the session's event that a turn begins with."""


async def whole_log(log: TurnLog, turn: Turn) -> list[LoggedEvent]:
    """All that a log holds."""
    found: list[LoggedEvent] = []
    while True:
        after = found[-1].number if found else 0
        page = await log.read(turn.session.tenant, turn.id, after=after)
        found += page.events
        if not page.events or found[-1].number >= page.turn.last_event:
            return found


async def stored_events(store: SqlSessionStore, turn: Turn, *, whole: bool) -> list[Event]:
    """What the session has of a turn, as its reader is told. `whole` finds an old turn too."""
    key = turn.session
    service = SessionServiceAdapter(
        store, tenant=key.tenant, token_budget=None if whole else 0, root_agent_name=key.app_name
    )
    session = await service.get_session(
        app_name=key.app_name, user_id=key.user_id, session_id=key.session_id
    )
    reader, told, begun = TurnReader(), list[Event](), False
    for event in session.events if session else ():
        if event.id == USER_EVENT.format(turn=turn.id):
            begun = True
        elif begun and event.id.endswith(USER_EVENT.format(turn="")):
            break
        elif begun and event.invocation_id == turn.invocation_id and not event.interrupted:
            told += reader.read(event)
    return [event for event in told if event.type in _KNOWN_BY]


def untold(logged: Sequence[LoggedEvent], stored: Iterable[Event]) -> list[Event]:
    """What a log lacks: resets of messages that came to nothing, and what is stored, in order."""
    known = Counter(_name(event.type, event.data) for event in logged)
    missing: list[Event] = []
    for event in stored:
        name = _name(event.type, event.data())
        if known[name] > 0:
            known[name] -= 1
        else:
            missing.append(event)
    kept = {event.message for event in missing if isinstance(event, MessageCompleted)}
    resets = [MessageReset(message) for message in _unfinished(logged) if message not in kept]
    return [*resets, *missing]


def _name(kind: str, data: JsonObject) -> tuple[str, str]:
    return kind, str(data.get(_KNOWN_BY.get(kind, ""), ""))


def _unfinished(logged: Iterable[LoggedEvent]) -> list[str]:
    """Messages of which only deltas were told."""
    found: dict[str, None] = {}
    for event in logged:
        if event.type in _DELTAS:
            found[str(event.data["message"])] = None
        elif event.type in _OVER:
            found.pop(str(event.data["message"]), None)
    return list(found)
