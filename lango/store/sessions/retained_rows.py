"""Rows that every load includes, whatever its budget: of calls that wait, and of open tasks.

`sessions.open_calls` maps the id of each long-running call, and each task's scope, to its rows:
`{"invocation": id, "from": first seq, "to": last seq, "answered": seq}`. A task's rows are of many
invocations, so it names none. An answered call stays until the turn that answers it has ended: a
worker that resumes that turn after a crash needs the rows too. Then it moves to `closed_calls`; a
rewind that undoes the answer reopens it.

Every open call stays answerable, so none is dropped: a session with MAX_OPEN of them refuses the
entry that would open another. Of the closed ones only the newest MAX_CLOSED are kept.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from lango.errors import TurnLimitError
from lango.store.sessions.entries import Entry, StoredMessage

MAX_OPEN: Final = 1_000
"""Calls of a session that may wait for an answer: each adds its rows to every load."""
MAX_CLOSED: Final = 64

Calls = dict[str, dict[str, Any]]


class RetainedCalls(NamedTuple):
    """The calls of a session; None if there are none, as the append statement expects."""

    open: Calls | None
    closed: Calls | None


def after_append(
    calls: RetainedCalls, entry: Entry, *, seq: int, turn_seq: int, new_turn: bool
) -> RetainedCalls:
    """The calls after the entry is stored at `seq`."""
    open_calls, closed = dict(calls.open or {}), dict(calls.closed or {})
    if new_turn:
        for call_id in [call_id for call_id, call in open_calls.items() if call["answered"]]:
            closed[call_id] = open_calls.pop(call_id)
    for call_id, call in open_calls.items():
        open_calls[call_id] = _followed(call_id, call, entry, seq)
    for call_id in entry.opens_calls:
        first = _first_seq([*open_calls.values(), *closed.values()], entry.invocation_id, turn_seq)
        open_calls[call_id] = _new_call(entry.invocation_id, first, seq)
    if entry.scope and entry.scope not in open_calls:
        open_calls[entry.scope] = _new_call(None, turn_seq, seq)
    return RetainedCalls(open_calls or None, _newest(closed))


def check_room(calls: RetainedCalls, entry: Entry) -> None:
    """TurnLimitError if the entry opens calls and the session has too many open ones already."""
    open_calls = [call_id for call_id, call in (calls.open or {}).items() if not call["answered"]]
    count = len({*open_calls, *entry.opens_calls})
    if entry.opens_calls and count > MAX_OPEN:
        raise TurnLimitError(
            f"{count - 1} calls of this session wait for an answer, and more cannot be asked: "
            "answer or rewind some of them, or begin a new session.",
            limit="open_calls",
            allowed=MAX_OPEN,
            used=count,
        )


def _first_seq(calls: list[dict[str, Any]], invocation_id: str, turn_seq: int) -> int:
    """The first seq of an invocation: before this turn, if the turn resumes one that waited."""
    return min([turn_seq, *(call["from"] for call in calls if call["invocation"] == invocation_id)])


def _new_call(invocation_id: str | None, first: int, last: int) -> dict[str, Any]:
    return {"invocation": invocation_id, "from": first, "to": last, "answered": None}


def _followed(call_id: str, call: dict[str, Any], entry: Entry, seq: int) -> dict[str, Any]:
    """A call after one more entry: more rows of its own, or its answer."""
    is_task = call["invocation"] is None
    is_own = entry.scope == call_id if is_task else entry.invocation_id == call["invocation"]
    answers = entry.responses if is_task else entry.answers_calls
    answered = call["answered"] or (seq if call_id in answers else None)
    return call | {"to": seq if is_own else call["to"], "answered": answered}


def _newest(calls: Calls) -> Calls | None:
    return dict(list(calls.items())[-MAX_CLOSED:]) or None


def before_rewind(calls: RetainedCalls, first: int) -> RetainedCalls:
    """The calls as they were before a seq, without later calls and answers."""
    by_id = {**(calls.closed or {}), **(calls.open or {})}
    earlier = {call_id: call for call_id, call in by_id.items() if call["from"] < first}
    waiting = {
        call_id: call | {"answered": None, "to": min(call["to"], first - 1)}
        for call_id, call in earlier.items()
        if call["answered"] is None or call["answered"] >= first
    }
    closed = {call_id: call for call_id, call in earlier.items() if call_id not in waiting}
    return RetainedCalls(waiting or None, _newest(closed))


class RetainedRows:
    """The rows of open calls and tasks: `row in Pinned(open_calls)`."""

    def __init__(self, open_calls: Calls | None) -> None:
        self._by_invocation: dict[str | None, list[dict[str, Any]]] = {}
        for call in (open_calls or {}).values():
            self._by_invocation.setdefault(call["invocation"], []).append(call)

    def __contains__(self, row: StoredMessage) -> bool:
        calls = self._by_invocation
        spans = (*calls.get(None, ()), *calls.get(row.invocation_id, ()))
        return any(call["from"] <= row.seq <= call["to"] for call in spans)


def spans(open_calls: Calls | None, after: int) -> list[tuple[str | None, int, int]]:
    """(invocation, first seq, last seq) of the pinned rows at or before `after`."""
    pinned = {
        (call["invocation"], call["from"], min(call["to"], after))
        for call in (open_calls or {}).values()
        if call["from"] <= after
    }
    return sorted(pinned, key=lambda span: span[1])
