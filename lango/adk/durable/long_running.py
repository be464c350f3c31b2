"""Long-running calls whose tool was cut off: ADK would wait for them for ever."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from google.adk.events.event import Event

from lango.adk.approvals import QUESTIONS


def hide_marks(events: Sequence[Event], invocation_id: str, finished: Collection[str]) -> set[str]:
    """Take the marks from an event with a call whose tool never finished, in memory only.

    ADK then runs its calls again, as it does any call without a response; those that have finished
    give what the ledger holds. The calls that lost their mark are returned.
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
        if lost:
            event.long_running_tool_ids = set()
            hidden |= marks
    return hidden
