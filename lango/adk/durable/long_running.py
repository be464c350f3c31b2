"""Long-running calls whose tool was cut off: ADK would wait for them for ever."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from google.adk.events.event import Event

from lango.adk.approvals import QUESTIONS


def hide_marks(events: Sequence[Event], invocation_id: str, finished: Collection[str]) -> set[str]:
    """Take the mark from calls that nobody answered and whose tool never finished, in memory only.

    ADK then runs them again, as it does any call without a response. They are returned.
    """
    mine = [event for event in events if event.invocation_id == invocation_id]
    answered = {response.id for event in mine for response in event.get_function_responses()}
    hidden: set[str] = set()
    for event in mine:
        marks = event.long_running_tool_ids
        if not marks:
            continue
        lost = {
            call.id
            for call in event.get_function_calls()
            if call.id in marks and call.name not in QUESTIONS
            if call.id not in answered and call.id not in finished
        }
        event.long_running_tool_ids = marks - lost
        hidden |= lost
    return hidden
