"""Calls that have no response yet."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from google.adk.events.event import Event
from google.genai import types


def open_calls(events: Sequence[Event]) -> Iterator[tuple[Event, types.FunctionCall]]:
    """The calls without a response, each with its event."""
    answered = {response.id for event in events for response in event.get_function_responses()}
    for event in events:
        for call in event.get_function_calls():
            if call.id not in answered:
                yield event, call


def calls_last(events: list[Event], invocation_id: str) -> None:
    """Put what says nothing and follows an open call before that call; in memory only.

    ADK runs a call that was cut off if it is the last event of its branch, and takes one that
    anything follows for one that waits. A Workflow that goes on writes down where it stands, at any
    moment, and those of attempts that died are stored behind the call. A call that waits for a
    person does not run, and stays where it is.
    """
    mine = [event for event in events if event.invocation_id == invocation_id]
    call = next((event for event, _ in open_calls(mine) if not event.long_running_tool_ids), None)
    if call is None:
        return
    place = next(number for number, event in enumerate(events) if event is call)
    notes = [event for event in events[place + 1 :] if _is_note(event, call)]
    others = [event for event in events[place + 1 :] if not _is_note(event, call)]
    events[place:] = [*notes, call, *others]


def _is_note(event: Event, call: Event) -> bool:
    same_place = (event.invocation_id, event.branch) == (call.invocation_id, call.branch)
    return event.content is None and same_place and event.author != call.author
