"""Prepares a session so that ADK can start or resume an invocation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from google.adk.agents.base_agent import BaseAgent
from google.adk.agents.llm_agent import LlmAgent
from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions
from google.adk.runners import Runner
from google.adk.sessions.session import Session
from google.adk.workflow import BaseNode
from google.genai import types

from lango.adk.durable.claimed.sessions import ClaimedSessions
from lango.adk.durable.journal import is_end
from lango.adk.durable.repairs import REPAIRS, REPAIRS_OF_AGENTS
from lango.store.sessions.entries import SessionKey


@dataclass(frozen=True, slots=True)
class Resumed:
    """An invocation that is ready to run."""

    message: types.Content | None  # to pass to ADK
    stored: Sequence[Event] = field(default_factory=list[Event])  # since the message
    repaired: Sequence[Event] = field(default_factory=list[Event])  # written just now
    state: dict[str, Any] | None = None  # to store with the message
    is_new: bool = False  # the message is not stored yet

    @property
    def has_begun(self) -> bool:
        """Whether an agent has done anything yet."""
        return any(event.author != "user" for event in self.stored)


async def load(sessions: ClaimedSessions, key: SessionKey) -> Session | None:
    """The session of a key."""
    return await sessions.get_session(
        app_name=key.app_name, user_id=key.user_id, session_id=key.session_id
    )


def since_message(sessions: ClaimedSessions, session: Session, message_id: str) -> list[Event]:
    """The invocation's events from its message on. Empty if the message was never stored."""
    start = next(
        (index for index, event in enumerate(session.events) if event.id == message_id), None
    )
    if start is None:
        return []
    invocation_id = sessions.invocation_id
    return [event for event in session.events[start:] if event.invocation_id == invocation_id]


async def resumable(
    runner: Runner,
    sessions: ClaimedSessions,
    key: SessionKey,
    message_id: str,
    message: types.Content,
    state: dict[str, Any] | None = None,
) -> Resumed:
    """Prepare an invocation; write the events that a dead worker did not write."""
    root = runner.agent
    may_have_begun = sessions.claim.resumes or _in_fixed_order(root)
    session = await load(sessions, key) if may_have_begun else None
    turn_history = since_message(sessions, session, message_id) if session else []
    if session is None or not turn_history:
        return await _begun(sessions, session, root, message_id, message, state)
    stored = turn_history[1:]
    repaired = await _repaired(sessions, session)
    content: types.Content | None = turn_history[0].content or message
    if _answers(content or message):  # ADK needs it again; the store knows it by its id
        sessions.message_id = message_id
    elif _in_fixed_order(root):
        content = None
    return Resumed(content, stored=stored, repaired=repaired)


async def _repaired(sessions: ClaimedSessions, session: Session) -> list[Event]:
    """Write the missing events; each repair sees the events of those before it."""
    repaired: list[Event] = []
    results = await sessions.ledger.results(sessions.claim, sessions.invocation_id)
    for repair in REPAIRS_OF_AGENTS if sessions.agent_positions else REPAIRS:
        own_events = [e for e in session.events if e.invocation_id == sessions.invocation_id]
        for event in list(repair(own_events, results)):
            position = sessions.agent_positions.get(event.author)
            # An agent that a deploy has removed has no position.
            if is_end(event) and position is not None and not position.stores_end:
                continue
            await sessions.append_event(session, event)
            repaired.append(event)
    return repaired


async def _begun(
    sessions: ClaimedSessions,
    session: Session | None,
    root: BaseNode,
    message_id: str,
    message: types.Content,
    state: dict[str, Any] | None,
) -> Resumed:
    sessions.message_id = message_id
    if session is None or session.events or not _in_fixed_order(root):
        return Resumed(message, state=state, is_new=True)
    # ADK finds nothing to resume in an empty session, and a chosen invocation id means resuming.
    await sessions.append_event(
        session,
        Event(
            invocation_id=sessions.invocation_id,
            author="user",
            content=message,
            actions=EventActions(state_delta=state or {}),
        ),
    )
    return Resumed(None)


def _answers(content: types.Content) -> bool:
    return any(part.function_response for part in content.parts or [])


def _in_fixed_order(root: BaseNode) -> bool:
    """Whether it is a sequence, a loop or the like: ADK runs those by an older code path."""
    return isinstance(root, BaseAgent) and not isinstance(root, LlmAgent)
