"""The timeline of a turn: its steps and how long each took."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby, pairwise
from typing import Final, Literal

from lango.core.model_calls import CallOutcome, ModelCall
from lango.core.streams import Usage
from lango.core.times import moment, moment_or_none
from lango.core.turn_states import TurnState

StepKind = Literal["queue", "attempt", "model", "retry", "tool", "wait"]
"""Waiting for a worker; an attempt at the turn; an attempt at a model call; the pause before the
next one; a tool call; waiting for a person."""
StepOutcome = Literal[
    "completed",
    "failed",
    "cancelled",
    "waiting",  # the attempt ended with a question to a person
    "running",
    "lost",  # the worker of the attempt died or had to stop, and another took over; of a model
    # call: its worker died, and its usage is unknown
    "unknown",  # of a tool: it was started, and its outcome is not recorded
    "open",  # the wait has not ended yet
    "approved",
    "denied",
    "answered",
]
ARGUMENTS_ROOM: Final = 500
"""Characters shown of a tool's arguments."""
MOST_STEPS: Final = 1_000


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


def total_cost(costs: Sequence[float | None]) -> float | None:
    """The sum of the known costs; None if none is known."""
    known = [cost for cost in costs if cost is not None]
    return sum(known) if known else None
