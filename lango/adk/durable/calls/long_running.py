"""Long-running calls: those whose tool was interrupted, and those that wait for their result."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from google.adk.events.event import Event
from google.genai import types

from lango.adk.durable.journal import open_waits
from lango.adk.tools.approvals import QUESTIONS
from lango.core.values import JsonObject

PENDING: Final[JsonObject] = {"status": "pending"}
"""The result that the model sees of a call that still waits for it: ADK's own word."""


def hide_marks(events: Sequence[Event], invocation_id: str, finished: Collection[str]) -> set[str]:
    """Remove the marks of events with a call whose tool never finished, in memory only.

    ADK then runs their calls again, as any call without a response; finished calls return the
    ledger's result. Returns the calls that lost their mark.
    """
    own_events = [event for event in events if event.invocation_id == invocation_id]
    answered = {response.id for event in own_events for response in event.get_function_responses()}
    hidden: set[str] = set()
    for event in own_events:
        marks = event.long_running_tool_ids
        if not marks:
            continue
        lost = {
            call.id
            for call in event.get_function_calls()
            if call.id in marks and call.name not in QUESTIONS
            if call.id not in answered and call.id not in finished
        }
        if lost:
            event.long_running_tool_ids = set()
            hidden |= marks
    return hidden


def show_pending(contents: list[types.Content], events: Sequence[Event]) -> None:
    """Add a pending result to every call that waits for its result and has none yet.

    Only the request changes. Otherwise the model would see the call as interrupted and might
    repeat it.
    """
    if not any(event.long_running_tool_ids for event in events):
        return
    answered = {response.id for event in events for response in event.get_function_responses()}
    waiting = open_waits(events) - answered
    names = {
        call.name
        for event in events
        for call in event.get_function_calls()
        if call.id in waiting and call.name not in QUESTIONS
    }
    for index in range(len(contents) - 1, -1, -1) if names else ():
        results = _results(contents[index + 1]) if index + 1 < len(contents) else []
        pending = [
            types.Part(
                function_response=types.FunctionResponse(
                    id=call.id, name=call.name, response=PENDING
                )
            )
            for call in _calls(contents[index])
            if call.name in names and not any(_answers(result, call) for result in results)
        ]
        if pending and results:
            follows = contents[index + 1]
            parts = [*(follows.parts or []), *pending]
            contents[index + 1] = types.Content(role=follows.role, parts=parts)
        elif pending:
            contents.insert(index + 1, types.Content(role="user", parts=pending))


def _calls(content: types.Content) -> list[types.FunctionCall]:
    return [part.function_call for part in content.parts or [] if part.function_call]


def _results(content: types.Content) -> list[types.FunctionResponse]:
    return [part.function_response for part in content.parts or [] if part.function_response]


def _answers(result: types.FunctionResponse, call: types.FunctionCall) -> bool:
    """Match by id, else by name; ADK omits ids that the model did not assign."""
    return result.id == call.id if call.id else result.name == call.name
