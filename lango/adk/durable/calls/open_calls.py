"""Calls without a response."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from google.adk.events.event import Event
from google.genai import types

from lango.adk.tools.approvals import CONFIRMATION, approval_of


def open_calls(events: Sequence[Event]) -> Iterator[tuple[Event, types.FunctionCall]]:
    """The calls without a response, each with its event."""
    answered = {response.id for event in events for response in event.get_function_responses()}
    for event in events:
        for call in event.get_function_calls():
            if call.id not in answered:
                yield event, call


def decided_calls(events: Sequence[Event]) -> Iterator[tuple[Event, types.FunctionCall, bool]]:
    """The calls that a person has decided on and that have no response since.

    Each with its event, and whether the person approved it. An earlier response is only the
    placeholder of a call that waits for its confirmation.
    """
    calls = {call.id: (event, call) for event in events for call in event.get_function_calls()}
    decided: dict[str, bool] = {}
    for event in events:
        for response in event.get_function_responses():
            _, question = calls.get(response.id, (None, None))
            if question is None or question.name != CONFIRMATION:
                decided.pop(response.id or "", None)
            elif event.author == "user" and (approval := approval_of(question, "")) is not None:
                decided[approval.call_id] = bool((response.response or {}).get("confirmed"))
    for call_id, approved in decided.items():
        if call_id in calls:
            yield *calls[call_id], approved


def calls_last(events: list[Event], invocation_id: str) -> None:
    """Move events without content from after an open call to before it, in memory only.

    ADK runs an interrupted call if it is the last event of its branch; otherwise it takes the call
    for one that waits. A resumed Workflow records its position at any moment, so the records of
    dead attempts are stored after the call. A call that waits for a person does not run, and stays
    in place.
    """
    own_events = [event for event in events if event.invocation_id == invocation_id]
    call = next(
        (event for event, _ in open_calls(own_events) if not event.long_running_tool_ids), None
    )
    if call is None:
        return
    call_index = next(index for index, event in enumerate(events) if event is call)
    notes = [event for event in events[call_index + 1 :] if _is_note(event, call)]
    others = [event for event in events[call_index + 1 :] if not _is_note(event, call)]
    events[call_index:] = [*notes, call, *others]


def _is_note(event: Event, call: Event) -> bool:
    same_branch = (event.invocation_id, event.branch) == (call.invocation_id, call.branch)
    return event.content is None and same_branch and event.author != call.author
