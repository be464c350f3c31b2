"""The steps of a timeline, built from stored rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from lango.core.times import moment, moment_or_none
from lango.core.turn_states import TurnState
from lango.core.turns import (
    ApprovalRequired,
    Retrying,
    Started,
    ToolFinished,
    ToolStarted,
)
from lango.core.values import JsonObject
from lango.insight.timeline import Step, StepError, StepOutcome
from lango.store.ledger import CONFIRMED
from lango.store.turn_rows import Turn

TOLD_BY: Final = tuple(
    kind.type for kind in (Started, Retrying, ToolStarted, ToolFinished, ApprovalRequired)
)
"""The events that hold what the rows of turns and tools do not."""
_INTERNAL: Final = "InternalError"
_OUTCOMES: Final[Mapping[TurnState, StepOutcome]] = {
    "running": "running",
    "completed": "completed",
    "failed": "failed",
    "cancelled": "cancelled",
    "waiting": "waiting",
    "answered": "waiting",
}


@dataclass(frozen=True, slots=True)
class ToldEvent:
    """The part of a logged event that a timeline needs."""

    turn: int
    type: str
    at: float
    call: str = ""
    name: str = ""
    approval: str = ""
    arguments: str = ""
    error: str = ""
    error_id: str = ""
    attempt: int | None = None
    after: float = 0.0
    why: str = ""


@dataclass(frozen=True, slots=True)
class LedgerRun:
    """The part of a ledger row that a timeline needs."""

    call_key: str
    tool: str
    arguments: str
    started: float
    finished: float | None
    error: str = ""
    error_id: str = ""

    @property
    def call(self) -> str:
        """The id of the call."""
        return self.call_key.removesuffix(CONFIRMED)


def steps_of(
    turns: Sequence[Turn], events: Sequence[ToldEvent], runs: Sequence[LedgerRun]
) -> Iterator[Step]:
    """All steps except the model calls, unordered."""
    for turn in turns:
        mine = [event for event in events if event.turn == turn.number]
        yield _queued(turn)
        yield from _attempts(turn, mine)
        yield from (_again(turn, event) for event in mine if event.type == Retrying.type)
    yield from _tools(turns, events, runs)
    yield from _waits(turns, events)


def _queued(turn: Turn) -> Step:
    since = max(turn.created, turn.run_at or 0.0)
    begun, dropped = turn.started is not None, turn.ended is not None
    until = turn.started if begun else turn.ended
    return Step(
        kind="queue",
        started=moment(since),
        ended=None if until is None else moment(max(since, until)),
        outcome="completed" if begun else "cancelled" if dropped else "open",
        turn=turn.id,
    )


def _attempts(turn: Turn, events: Sequence[ToldEvent]) -> Iterator[Step]:
    """A step for each attempt at the turn; without its log, one for all."""
    if turn.started is None:
        return
    begun = [(one.at, one.attempt or 1) for one in events if one.type == Started.type]
    begun = begun or [(turn.started, turn.attempts)]
    for (started, number), (ended, _) in pairwise(begun):
        yield Step("attempt", moment(started), moment(ended), "lost", turn=turn.id, number=number)
    started, number = begun[-1]
    yield Step(
        kind="attempt",
        started=moment(started),
        ended=moment_or_none(turn.ended),
        outcome=_OUTCOMES.get(turn.state, "running"),
        turn=turn.id,
        number=number,
        error=_error_of(turn),
    )


def _error_of(turn: Turn) -> StepError | None:
    """Why a turn failed; an internal error without an error id gets its invocation's id."""
    told: JsonObject | None = turn.error
    if told is None:
        return None
    kind = str(told.get("type", ""))
    inside = str(told.get("error_id") or (turn.invocation_id if kind == _INTERNAL else ""))
    return StepError(kind, str(told.get("message", "")), bool(told.get("retryable")), inside)


def _again(turn: Turn, event: ToldEvent) -> Step:
    why = StepError("", event.why) if event.why else None
    until = moment(event.at + event.after)
    return Step("retry", moment(event.at), until, "completed", turn=turn.id, error=why)


def _tools(
    turns: Sequence[Turn], events: Sequence[ToldEvent], runs: Sequence[LedgerRun]
) -> Iterator[Step]:
    is_over = all(turn.ended is not None for turn in turns)
    finished = {event.call: event for event in events if event.type == ToolFinished.type}
    for run in runs:
        yield _ran(run, finished.get(run.call), is_over)
    # What the ledger does not have: tools that take no effect, or were refused before they ran.
    known = {run.call for run in runs}
    known |= {event.call for event in events if event.type == ApprovalRequired.type}
    for event in events:
        if event.type == ToolStarted.type and event.call not in known:
            known.add(event.call)
            started = LedgerRun(event.call, event.name, event.arguments, event.at, None)
            yield _ran(started, finished.get(event.call), is_over)


def _ran(run: LedgerRun, end: ToldEvent | None, is_over: bool) -> Step:
    """The step of a tool run: its end and its error are from the ledger, or else from the log."""
    ended = run.finished if run.finished is not None else end and end.at
    error, error_id = run.error or (end and end.error) or "", run.error_id
    if ended is None:
        outcome: StepOutcome = "unknown" if is_over else "running"
    else:
        outcome = "failed" if error else "completed"
    return Step(
        kind="tool",
        started=moment(run.started),
        ended=None if ended is None else moment(max(run.started, ended)),
        outcome=outcome,
        id=run.call,
        name=run.tool,
        arguments=run.arguments,
        error=StepError("", error, error_id=error_id or (end and end.error_id) or "")
        if error
        else None,
    )


def _waits(turns: Sequence[Turn], events: Sequence[ToldEvent]) -> Iterator[Step]:
    """A step for each question to a person, from when it was asked to when it was answered."""
    asked = {event.approval: event for event in events if event.type == ApprovalRequired.type}
    called = {event.call: event.name for event in events if event.type == ToolStarted.type}
    answers = {
        one["call_id"]: (turn, bool(one.get("approved")))
        for turn in turns
        for one in turn.input.get("answers", ())
    }
    seen = set[str]()
    for turn in turns:
        for call in (one for one in turn.waits_for if one not in seen):
            seen.add(call)
            question = asked.get(call)
            since = question.at if question else turn.ended or turn.created
            answered, agreed = answers.get(call, (None, False))
            said: StepOutcome = "approved" if agreed else "denied"
            yield Step(
                kind="wait",
                started=moment(since),
                ended=None if answered is None else moment(max(since, answered.created)),
                outcome="open" if answered is None else said if question else "answered",
                id=call,
                name=question.name if question else called.get(call, ""),
                turn=turn.id,
            )
