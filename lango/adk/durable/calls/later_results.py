"""Patches what a model sees when the result of a call arrives after other messages.

ADK shows the model the call and its result, but no message between them, so the model would repeat
what it has done since. Here those messages stay, and the call moves after them, with its result.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from google.adk.events.event import Event
from google.genai import types

from lango.adk.compat.contents import arrange, replace_arrange


def rearranged(events: list[Event]) -> list[Event]:
    """The events with the newest result directly after its call, and none dropped."""
    arranged = arrange(events)
    if len(arranged) < 2 or not arranged[-1].get_function_responses():
        return arranged
    *before, call, result = arranged
    last = len(events) - 2
    call_index = next((index for index in range(last, -1, -1) if events[index] is call), last)
    if call_index == last:
        return arranged
    answered = _with_parallel_calls(
        {response.id for response in events[-1].get_function_responses()}, events
    )
    stripped = (_without_results(event, answered) for event in events[call_index + 1 : -1])
    between = [event for event in stripped if event is not None]
    if between and _is_text(between[-1]):  # a call must follow a user's message or a result
        call = _with_parts(call, [*_parts(between.pop()), *_parts(call)])
    return [*before, *between, call, result]


def _with_parallel_calls(calls: Collection[str | None], events: Sequence[Event]) -> set[str | None]:
    """These calls, and those that were made together with one of them."""
    call_ids = ({call.id for call in event.get_function_calls()} for event in events)
    return {call for together in call_ids if together.intersection(calls) for call in together}


def _without_results(event: Event, calls: Collection[str | None]) -> Event | None:
    """The event without results of these calls; None if it has nothing else."""
    parts = [
        part
        for part in _parts(event)
        if part.function_response is None or part.function_response.id not in calls
    ]
    if len(parts) == len(_parts(event)):
        return event
    return _with_parts(event, parts) if parts else None


def _is_text(event: Event) -> bool:
    is_model = event.content is not None and event.content.role == "model"
    return is_model and not event.get_function_calls()


def _parts(event: Event) -> list[types.Part]:
    return (event.content.parts if event.content else None) or []


def _with_parts(event: Event, parts: list[types.Part]) -> Event:
    role = event.content.role if event.content else None
    return event.model_copy(update={"content": types.Content(role=role, parts=parts)})


def install_patch() -> None:
    """Patch ADK's function (idempotent)."""
    replace_arrange(rearranged)
