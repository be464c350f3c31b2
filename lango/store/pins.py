"""Old rows that a load must bring along: of calls that wait for an answer, and of open tasks.

`sessions.open_calls` maps the id of each long-running call, and each task's scope, to its rows:
`{"invocation": id, "from": first seq, "to": last seq, "answered": seq}`. A task's rows are of many
invocations, so it names none. An answered call stays as long as the turn that answers it goes on:
resumed after a crash, that turn needs the rows too. Then it moves to `closed_calls`, from where a
rewind that takes the answer back brings it back.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from lango.store.entries import Entry, StoredMessage

MAX_CALLS: Final = 64  # a tool that never gets its answer must not make loads grow for ever

Calls = dict[str, dict[str, Any]]


class Pins(NamedTuple):
    """The calls of a session; None instead of an empty one, as the append statement wants it."""

    open: Calls | None
    closed: Calls | None


def after_append(pins: Pins, entry: Entry, *, seq: int, turn_seq: int, new_turn: bool) -> Pins:
    """The calls once the entry stands at `seq`."""
    open_calls, closed = dict(pins.open or {}), dict(pins.closed or {})
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
    return Pins(_bounded(open_calls), _bounded(closed))


def _first_seq(calls: list[dict[str, Any]], invocation_id: str, turn_seq: int) -> int:
    """Where an invocation begins: before this turn, if one that waited is going on in it."""
    return min([turn_seq, *(call["from"] for call in calls if call["invocation"] == invocation_id)])


def _new_call(invocation_id: str | None, first: int, last: int) -> dict[str, Any]:
    return {"invocation": invocation_id, "from": first, "to": last, "answered": None}


def _followed(call_id: str, call: dict[str, Any], entry: Entry, seq: int) -> dict[str, Any]:
    """A call after one more entry: more rows of its own, or its answer."""
    is_task = call["invocation"] is None
    own = entry.scope == call_id if is_task else entry.invocation_id == call["invocation"]
    answers = entry.responses if is_task else entry.answers_calls
    answered = call["answered"] or (seq if call_id in answers else None)
    return call | {"to": seq if own else call["to"], "answered": answered}


def _bounded(calls: Calls) -> Calls | None:
    return dict(list(calls.items())[-MAX_CALLS:]) or None


def before_rewind(pins: Pins, first: int) -> Pins:
    """The calls as they stood before a seq: later ones are gone, later answers not given."""
    known = {**(pins.closed or {}), **(pins.open or {})}
    kept = {call_id: call for call_id, call in known.items() if call["from"] < first}
    waiting = {
        call_id: call | {"answered": None, "to": min(call["to"], first - 1)}
        for call_id, call in kept.items()
        if call["answered"] is None or call["answered"] >= first
    }
    closed = {call_id: call for call_id, call in kept.items() if call_id not in waiting}
    return Pins(_bounded(waiting), _bounded(closed))


def is_pinned(open_calls: Calls | None, row: StoredMessage) -> bool:
    """Whether the row is one of an open call's or task's."""
    return any(
        call["from"] <= row.seq <= call["to"] and call["invocation"] in (None, row.invocation_id)
        for call in (open_calls or {}).values()
    )


def spans(open_calls: Calls | None, after: int) -> list[tuple[str | None, int, int]]:
    """(invocation, first seq, last seq) of the pinned rows at or before `after`."""
    found = {
        (call["invocation"], call["from"], min(call["to"], after))
        for call in (open_calls or {}).values()
        if call["from"] <= after
    }
    return sorted(found, key=lambda span: span[1])
