"""The timeline of a turn: its steps and how long each took."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby, pairwise
from typing import Final, Literal

from lango.core.context.model_calls import CallOutcome, ModelCall
from lango.core.messages.streams import Usage
from lango.core.times import moment, moment_or_none
from lango.core.turns.event_json import usage_of
from lango.core.turns.events import (
    ApprovalRequired,
    CredentialRequired,
    Retrying,
    Started,
    ToolFinished,
    ToolStarted,
)
from lango.core.turns.states import TurnState
from lango.core.values import JsonObject
from lango.store.db.database import Database
from lango.store.insight.timeline import (
    MAX_STEPS,
    LedgerRun,
    TimelineEvent,
    TimelineRows,
    read_timeline_rows,
)
from lango.store.turns.rows import Turn

StepKind = Literal["queue", "attempt", "model", "retry", "tool", "wait"]
"""Waiting for a worker; an attempt at the turn; an attempt at a model call; the pause before the
next one; a tool call; waiting for a person."""
StepOutcome = Literal[
    "completed",
    "failed",
    "cancelled",
    "input_required",  # the attempt ended with a question to a person
    "running",
    "lost",  # the worker of the attempt died or had to stop, and another took over; of a model
    # call: its worker died, and its usage is unknown
    "unknown",  # of a tool: it was started, and its outcome is not recorded
    "open",  # the wait has not ended yet
    "approved",
    "denied",
    "answered",
]
_INTERNAL: Final = "InternalError"
_OUTCOMES: Final[Mapping[TurnState, StepOutcome]] = {
    "running": "running",
    "completed": "completed",
    "failed": "failed",
    "cancelled": "cancelled",
    "input_required": "input_required",
    "answered": "input_required",
}


@dataclass(frozen=True, slots=True)
class StepError:
    """The error of a step; `error_id` identifies it in the log of the process."""

    type: str
    message: str = ""
    retryable: bool = False
    error_id: str = ""


@dataclass(frozen=True, slots=True)
class Step:
    """One span of time. Fields that do not apply to its kind are empty."""

    kind: StepKind
    started: datetime
    ended: datetime | None  # None: in progress
    outcome: StepOutcome
    id: str = ""  # of the model call, the tool call or the approval
    name: str = ""  # of the model or the tool
    turn: str = ""
    agent: str = ""
    provider: str = ""
    number: int | None = None  # of the attempt, from 1
    first_byte: datetime | None = None
    usage: Usage | None = None  # as reported; None: not reported
    cost: float | None = None  # US dollars; None: unknown
    arguments: str = ""  # the beginning of their JSON
    error: StepError | None = None
    request_id: str = ""


@dataclass(frozen=True, slots=True)
class Timeline:
    """A turn and the turns that answered its questions: together they form one invocation."""

    turn: str
    session: str
    app: str
    state: TurnState
    started: datetime
    ended: datetime | None  # None: in progress
    turns: tuple[str, ...]
    usage: Usage
    cost: float | None
    log_kept: bool  # if not, steps that only the log held are missing
    steps: tuple[Step, ...]  # by start time
    more: bool  # whether steps were left out
    trace_id: str | None = None  # for a trace viewer; None if it was accepted without traces


async def read_timeline(database: Database, turn: Turn) -> Timeline:
    """The timeline of a turn, and of the turns that answered its questions."""
    return timeline_of(turn, await read_timeline_rows(database, turn))


def timeline_of(turn: Turn, rows: TimelineRows) -> Timeline:
    """The timeline of a turn from its rows."""
    steps = [*model_steps(rows.calls), *_turn_steps(rows)]
    steps.sort(key=lambda step: (step.started, step.kind != "queue", step.kind != "attempt"))
    costs = [call.price for call in rows.calls if call.price is not None]
    return Timeline(
        turn=turn.id,
        session=rows.session,
        app=turn.session.app_name,
        state=turn.state,
        started=moment(rows.turns[0].created),
        ended=_ended(rows.turns),
        turns=tuple(related.id for related in rows.turns),
        usage=_usage(rows),
        cost=sum(costs) if costs else None,
        log_kept=not any(related.trimmed for related in rows.turns),
        steps=tuple(steps[:MAX_STEPS]),
        more=len(steps) > MAX_STEPS or MAX_STEPS in (len(rows.calls), len(rows.runs)),
        trace_id=turn.trace_id,
    )


def _ended(turns: Sequence[Turn]) -> datetime | None:
    ended = [turn.ended for turn in turns if turn.ended is not None]
    goes_on = len(ended) < len(turns) or turns[-1].state == "input_required"
    return None if goes_on else moment(max(ended))


def _usage(rows: TimelineRows) -> Usage:
    """What the calls reported; if none is recorded, what the turns did."""
    reported = [call.attempt.usage for call in rows.calls]
    if not rows.calls:  # not every set-up records them
        reported = [usage_of(turn.usage) for turn in rows.turns if turn.usage is not None]
    return sum(filter(None, reported), Usage())


def model_steps(calls: Sequence[ModelCall]) -> Iterator[Step]:
    """Every attempt of every call, and the pauses between the attempts of one call."""
    by_call = sorted(calls, key=lambda call: (call.call, call.number))
    for _, tries in groupby(by_call, key=lambda call: call.call):
        of_call = list(tries)
        yield from map(_tried, of_call)
        yield from (_pause(before, after) for before, after in pairwise(of_call))


def _tried(call: ModelCall) -> Step:
    attempt = call.attempt
    return Step(
        kind="model",
        started=moment(attempt.started),
        ended=None if attempt.outcome == "started" else moment(attempt.ended),
        outcome=_outcome(attempt.outcome),
        id=call.call,
        name=attempt.model,
        agent=call.agent,
        provider=attempt.provider,
        number=call.number,
        first_byte=moment_or_none(attempt.first_byte),
        usage=attempt.usage,
        cost=call.price,
        error=_error(call),
        request_id=attempt.request_id,
    )


def _outcome(outcome: CallOutcome) -> StepOutcome:
    if outcome == "started":
        return "running"
    return "lost" if outcome == "cut_off" else outcome


def _pause(before: ModelCall, after: ModelCall) -> Step:
    return Step(
        kind="retry",
        started=moment(before.attempt.ended),
        ended=moment(max(before.attempt.ended, after.attempt.started)),
        outcome="completed",
        id=after.call,
        name=after.attempt.model,
        agent=after.agent,
        provider=after.attempt.provider,
        number=after.number,
        error=_error(before),
    )


def _error(call: ModelCall) -> StepError | None:
    error = call.attempt.error
    return StepError(error) if error else None


def _turn_steps(rows: TimelineRows) -> Iterator[Step]:
    """All steps except the model calls, unordered."""
    for turn in rows.turns:
        events = [event for event in rows.events if event.turn == turn.number]
        yield _queued(turn)
        yield from _attempts(turn, events)
        yield from (_retry(turn, event) for event in events if event.type == Retrying.type)
    yield from _tools(rows)
    yield from _waits(rows.turns, rows.events)


def _queued(turn: Turn) -> Step:
    since = max(turn.created, turn.run_at or 0.0)
    is_started, dropped = turn.started is not None, turn.ended is not None
    until = turn.started if is_started else turn.ended
    return Step(
        kind="queue",
        started=moment(since),
        ended=None if until is None else moment(max(since, until)),
        outcome="completed" if is_started else "cancelled" if dropped else "open",
        turn=turn.id,
    )


def _attempts(turn: Turn, events: Sequence[TimelineEvent]) -> Iterator[Step]:
    """A step for each attempt at the turn; without its log, one for all."""
    if turn.started is None:
        return
    attempts = [(event.at, event.attempt or 1) for event in events if event.type == Started.type]
    attempts = attempts or [(turn.started, turn.attempts)]
    for (started, number), (ended, _) in pairwise(attempts):
        yield Step("attempt", moment(started), moment(ended), "lost", turn=turn.id, number=number)
    started, number = attempts[-1]
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
    error: JsonObject | None = turn.error
    if error is None:
        return None
    kind = str(error.get("type", ""))
    error_id = str(error.get("error_id") or (turn.invocation_id if kind == _INTERNAL else ""))
    return StepError(kind, str(error.get("message", "")), bool(error.get("retryable")), error_id)


def _retry(turn: Turn, event: TimelineEvent) -> Step:
    error = StepError("", event.why) if event.why else None
    until = moment(event.at + event.after)
    return Step("retry", moment(event.at), until, "completed", turn=turn.id, error=error)


def _tools(rows: TimelineRows) -> Iterator[Step]:
    is_over = all(turn.ended is not None for turn in rows.turns)
    finished = {event.call: event for event in rows.events if event.type == ToolFinished.type}
    for run in rows.runs:
        yield _ran(run, finished.get(run.call), is_over)
    # The ledger has no row of a call whose tool did not run: unknown, or answered by a plugin.
    calls = {run.call for run in rows.runs}
    calls |= {event.call for event in rows.events if event.type == ApprovalRequired.type}
    for event in rows.events:
        if event.type == ToolStarted.type and event.call not in calls:
            calls.add(event.call)
            started = LedgerRun(event.call, event.name, event.arguments, event.at, None)
            yield _ran(started, finished.get(event.call), is_over)


def _ran(run: LedgerRun, end: TimelineEvent | None, is_over: bool) -> Step:
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


def _waits(turns: Sequence[Turn], events: Sequence[TimelineEvent]) -> Iterator[Step]:
    """A step for each question to a person, from when it was asked to when it was answered."""
    questions = {event.approval: event for event in events if event.type == ApprovalRequired.type}
    requests = {
        event.credential: event for event in events if event.type == CredentialRequired.type
    }
    tool_names = {event.call: event.name for event in events if event.type == ToolStarted.type}
    answers = {
        answer["call_id"]: (turn, bool(answer.get("approved")))
        for turn in turns
        for answer in turn.input.get("answers", ())
    }
    calls = set[str]()
    for turn in turns:
        for call in (call_id for call_id in turn.waits_for if call_id not in calls):
            calls.add(call)
            question = questions.get(call)
            request = question or requests.get(call)
            since = request.at if request else turn.ended or turn.created
            answered, agreed = answers.get(call, (None, False))
            decision: StepOutcome = "approved" if agreed else "denied"
            yield Step(
                kind="wait",
                started=moment(since),
                ended=None if answered is None else moment(max(since, answered.created)),
                outcome="open" if answered is None else decision if question else "answered",
                id=call,
                name=request.name if request else tool_names.get(call, ""),
                turn=turn.id,
            )
