"""Checks a load that was truncated to a token budget."""

from __future__ import annotations

from collections.abc import Sequence

from google.adk.events.event import Event

from faults.store.session_model import ModelSession, Row


def window_problem(session: ModelSession, loaded: Sequence[Event], budget: int) -> str:
    """The problem of a window, or an empty text.

    It is the newest rows that fit the budget, or the open turn if that is more; it may begin some
    rows later so as not to begin in the middle of a call and its answer; and before it stand only
    rows that must come along: the newest compaction, and those of long-running calls.
    """
    live, ids = session.live, [event.id for event in loaded]
    numbers_by_id = {row.event.id: number for number, row in enumerate(live)}
    if any(event_id not in numbers_by_id for event_id in ids):
        return "it holds events that are not in the session"
    numbers = [numbers_by_id[event_id] for event_id in ids]
    if numbers != sorted(set(numbers)):
        return "it is out of order or repeats events"
    fits, turn = _first_that_fits(live, budget), _open_turn(session)
    start = min(fits, turn)
    missing = [number for number in range(start, len(live)) if number not in numbers]
    if missing and (missing[-1] >= turn or not _is_call(live[start])):
        return f"it lacks row {missing[-1]} of {len(live)}, which fits (from {fits}, turn {turn})"
    if missing and missing != list(range(start, start + len(missing))) and not _pinned(session):
        return f"it has holes: {missing} of {len(live)} are missing"
    strays = [number for number in numbers if number < start and not _may_come(session, number)]
    if strays:
        return f"it holds rows {strays} that do not fit (from {start} of {len(live)})"
    waiting = [number for number in _waiting(session) if number not in numbers]
    return f"it lacks the unanswered long-running call at {waiting}" if waiting else ""


def _first_that_fits(live: list[Row], budget: int) -> int:
    left, first = budget, len(live)
    while first > 0 and live[first - 1].tokens <= left:
        first -= 1
        left -= live[first].tokens
    return first


def _open_turn(session: ModelSession) -> int:
    """Where the rows of the last turn begin, among the live ones."""
    rows, live = session.rows, session.live
    if not rows:
        return 0
    first = len(rows) - 1
    while first > 0 and rows[first - 1].event.invocation_id == rows[-1].event.invocation_id:
        first -= 1
    after = [row for row in rows[first:] if row.live and row.is_event]
    return len(live) - len(after)


def _is_call(row: Row) -> bool:
    return bool(row.event.get_function_calls() or row.event.get_function_responses())


def _pinned(session: ModelSession) -> set[str]:
    return {row.event.invocation_id for row in session.live if row.event.long_running_tool_ids}


def _may_come(session: ModelSession, number: int) -> bool:
    row = session.live[number]
    compactions = [other for other in session.live if other.event.actions.compaction]
    newest = bool(compactions) and compactions[-1] is row
    return newest or row.event.invocation_id in _pinned(session)


def _waiting(session: ModelSession) -> list[int]:
    """Rows of long-running calls without an answer."""
    answered = {
        response.id
        for row in session.live
        if row.event.author == "user"
        for response in row.event.get_function_responses()
    }
    return [
        number
        for number, row in enumerate(session.live)
        if row.event.long_running_tool_ids and not row.event.long_running_tool_ids & answered
    ]
