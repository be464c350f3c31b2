"""Closing the history of a turn that cannot go on, so that the session stays valid."""

from __future__ import annotations

from collections.abc import Sequence

from google.adk.events.event import Event
from google.adk.sessions.session import Session
from google.genai import types

from lango.adk.durable.claimed import ClaimedSessions
from lango.adk.durable.ledger import INTERRUPTED
from lango.adk.durable.open_calls import open_calls


async def close_history(sessions: ClaimedSessions, session: Session, invocation_id: str) -> None:
    """Answer every open call of an invocation: nobody knows how it went."""
    mine = [event for event in session.events if event.invocation_id == invocation_id]
    by_event: dict[str, tuple[Event, list[types.FunctionCall]]] = {}
    for event, call in open_calls(mine):
        by_event.setdefault(event.id, (event, []))[1].append(call)
    for event, calls in by_event.values():
        await sessions.append_event(session, _answer(event, calls))


def _answer(event: Event, calls: Sequence[types.FunctionCall]) -> Event:
    responses = [
        types.FunctionResponse(id=call.id, name=call.name, response={"error": INTERRUPTED})
        for call in calls
    ]
    parts = [types.Part(function_response=response) for response in responses]
    return Event(
        id=f"{event.id}.closed",
        invocation_id=event.invocation_id,
        author=event.author,
        branch=event.branch,
        isolation_scope=event.isolation_scope,
        node_info=event.node_info.model_copy(),
        content=types.Content(role="user", parts=parts),
    )
