"""Makes the ids of tool calls unique in their session, however the model numbers them.

Some servers number the calls of each response from 0, so two agents of one turn, or two answers of
one agent, use the same id. ADK pairs calls and responses by that id alone, and so do the ledger,
child sessions, artifacts and approvals. A call with a duplicate id therefore gets a new one before
its event is stored and its tool runs; the model sees the new id in the call and in its response. A
unique, valid id stays unchanged.
"""

from __future__ import annotations

from typing import Final

from google.adk.events.event import Event
from google.adk.models.llm_response import LlmResponse
from google.adk.sessions.session import Session
from google.genai import types

from lango.adk.tools.approvals import QUESTIONS
from lango.core.ids import MAX_ID_LENGTH, as_id, new_id

_ROOM: Final = MAX_ID_LENGTH - 32
"""Shorter than the maximum: keys that are made of a call's id add to it."""


class TurnCallIds:
    """The call ids that a claimed turn has seen, in its session and in those of its tools."""

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._events: set[str] = set()
        """Ids of events whose calls have final ids."""
        self._sessions: set[str] = set()

    def learn(self, session: Session) -> None:
        """Record the ids of a session's stored calls, the first time the session is seen."""
        if session.id in self._sessions:
            return
        self._sessions.add(session.id)
        for event in session.events:
            self._note(event)

    def settle(self, session: Session, event: Event) -> None:
        """Give the event's calls unique ids; the event is changed in place.

        The parts are copied: a model may return the same objects twice, and the session's earlier
        events would change with them. ADK's own questions keep their ids: a Workflow's node
        chooses the id and looks for the answer under it.
        """
        self.learn(session)
        calls = event.get_function_calls()
        if not calls or event.id in self._events:
            return
        if any(self._is_new_needed(call) for call in calls) or _has_doubles(calls):
            self._rename(event)
        self._note(event)

    def _note(self, event: Event) -> None:
        calls = event.get_function_calls()
        if calls:
            self._events.add(event.id)
            self._taken.update(call.id for call in calls if call.id)

    def _is_new_needed(self, call: types.FunctionCall) -> bool:
        if not call.id or call.name in QUESTIONS:
            return False
        return call.id in self._taken or call.id != as_id(call.id, _ROOM)

    def _rename(self, event: Event) -> None:
        marks = event.long_running_tool_ids or set[str]()
        parts: list[types.Part] = []
        still_marked: set[str] = set()
        for part in (event.content.parts if event.content else None) or ():
            call = part.function_call
            if call is None:
                parts.append(part)
                continue
            old_id = call.id or ""
            if self._is_new_needed(call):
                call = call.model_copy(update={"id": new_id("call")})
                part = part.model_copy(update={"function_call": call})
            self._taken.add(call.id or "")
            still_marked |= {call.id or ""} if old_id in marks else set()
            parts.append(part)
        if event.content is not None:
            event.content = event.content.model_copy(update={"parts": parts})
        if event.long_running_tool_ids is not None:
            event.long_running_tool_ids = still_marked


def without_doubles(response: LlmResponse) -> None:
    """Remove repeated ids from the calls of one response: ADK then assigns new ones.

    ADK does so before it marks long-running calls by their ids.
    """
    parts = (response.content.parts if response.content else None) or []
    if response.content is None or not _has_doubles([p.function_call for p in parts]):
        return
    call_ids: set[str] = set()
    changed: list[types.Part] = []
    for part in parts:
        call = part.function_call
        if call is not None and call.id and call.id in call_ids:
            call = call.model_copy(update={"id": None})
            part = part.model_copy(update={"function_call": call})
        elif call is not None and call.id:
            call_ids.add(call.id)
        changed.append(part)
    response.content = response.content.model_copy(update={"parts": changed})


def _has_doubles(calls: list[types.FunctionCall] | list[types.FunctionCall | None]) -> bool:
    ids = [call.id for call in calls if call is not None and call.id]
    return len(ids) != len(set(ids))
