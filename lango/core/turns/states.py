"""The life cycle of a turn in the queue: its states, their transitions, and its submission."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256
from typing import Any, ClassVar, Final, Literal

from lango.core.ids import check_id
from lango.core.turns.events import Event
from lango.core.turns.inputs import as_submitted, title_of
from lango.core.values import JsonObject, storable_json
from lango.errors import InvalidRunAtError, InvalidTimeLimitError

TurnState = Literal[
    "scheduled",  # not in the queue until it is due
    "queued",
    "running",
    "completed",
    "failed",
    "cancelled",
    "input_required",  # the run is over; a person's answer becomes a turn of its own
    "answered",
]

NEXT: Final[Mapping[TurnState, frozenset[TurnState]]] = {
    "scheduled": frozenset({"queued", "cancelled"}),
    "queued": frozenset({"running", "cancelled"}),
    "running": frozenset({"completed", "failed", "cancelled", "input_required"}),
    "completed": frozenset(),
    "failed": frozenset(),
    "cancelled": frozenset(),
    "input_required": frozenset({"answered"}),
    "answered": frozenset(
        {"input_required"}
    ),  # the answering turn ended before it stored the answer
}
"""The state transitions. A turn that another worker takes over stays `running`."""

PENDING: Final = frozenset[TurnState]({"scheduled", "queued"})
"""Not started: such a turn exists only as its row, so changing the row ends it."""

Busy = Literal["enqueue", "reject", "interrupt"]
"""What a new turn does in a busy session: wait in order, be refused, or go first."""

MAX_ATTEMPTS: Final = 5
"""A turn is given up after this many attempts that lost their worker; handovers do not count."""
MIN_ALONE: Final = 2
"""A turn is given up only if it was the one suspect in this many of these deaths."""
SUSPECT_AFTER: Final = 2
"""A turn that has lost this many workers is a suspect, and runs with care."""
SUSPECTS_TOGETHER: Final = 8
"""Suspects that a worker runs concurrently; one that has lost more workers is its only suspect."""
RETRY_OF: Final = "retry-of-"
"""How the idempotency key of a retry begins; the id of the first turn follows."""
ANY_LOSSES: Final = 1_000_000
"""More workers than a turn can lose."""
TIME_LIMIT: Final = 3600.0
"""Default time limit in seconds, over all attempts of a turn."""
MAX_TIME_LIMIT: Final = 30 * 24 * 3600.0
"""The longest time limit that a turn may have, in seconds."""


@dataclass(frozen=True, slots=True)
class NewTurn:
    """A turn as submitted."""

    input: JsonObject
    options: JsonObject = field(default_factory=dict[str, Any])
    idempotency_key: str | None = None
    run_at: datetime | None = None  # aware; the turn is not queued before
    time_limit: float = TIME_LIMIT
    key_id: str | None = None  # the API key, or token's user, whose limits it counts towards
    cost_limit: float | None = None  # US dollars: it fails once that caller's day has cost this
    turn_limit: int | None = None  # it is refused while that caller has so many open turns

    def checked(self) -> NewTurn:
        """This turn, validated and as storable JSON.

        InvalidIdError for a bad idempotency key, InvalidTimeLimitError for a bad time limit,
        InvalidRunAtError for a `run_at` that has no time zone or is out of range.
        """
        if self.idempotency_key is not None:
            check_id("idempotency key", self.idempotency_key)
        if not _is_time_limit(self.time_limit):
            raise InvalidTimeLimitError
        if self.run_at is not None and not _is_moment(self.run_at):
            raise InvalidRunAtError
        return NewTurn(
            storable_json(self.input),
            storable_json(self.options),
            self.idempotency_key,
            self.run_at,
            self.time_limit,
            self.key_id,
            self.cost_limit,
            self.turn_limit,
        )

    @property
    def title(self) -> str:
        """The title of a session without one whose first turn this is; empty for an answer."""
        return title_of(str(self.input.get("text", "")))

    def hash(self, app: str, *answers: str) -> str:
        """The SHA-256 (hex) by which two turns under one idempotency key count as the same.

        It covers the message, the names of its files, the app, the options and the call it answers
        (by invocation and id), but not when the turn runs.
        """
        identity: JsonObject = {
            "app": app,
            "input": as_submitted(self.input),
            "options": self.options,
        }
        if answers:
            identity["answers"] = answers
        canonical = json.dumps(identity, sort_keys=True, separators=(",", ":"), allow_nan=False)
        return sha256(canonical.encode()).hexdigest()


def _is_time_limit(value: Any) -> bool:
    """Whether this is a valid time limit; a comparison with NaN is false."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and 0 < value <= MAX_TIME_LIMIT


def _is_moment(value: Any) -> bool:
    """Whether this is an aware datetime that every time zone can represent."""
    is_aware = isinstance(value, datetime) and value.utcoffset() is not None
    return is_aware and 1971 <= value.year <= 9998


@dataclass(frozen=True, slots=True)
class Accepted(Event):
    """The turn is durable: it will run, even if the process that accepted it dies."""

    type: ClassVar[str] = "accepted"
    number: int  # in its session
    run_at: str | None = None


def most_losses_beside(losses_beside: Sequence[int]) -> int:
    """The most lost workers with which a turn may run beside turns that lost `losses_beside`."""
    suspects = [losses for losses in losses_beside if losses >= SUSPECT_AFTER]
    if not suspects:
        return ANY_LOSSES
    alike = max(suspects) == SUSPECT_AFTER and len(suspects) < SUSPECTS_TOGETHER
    return SUSPECT_AFTER if alike else SUSPECT_AFTER - 1


def waits_on(waits_for: Sequence[str], answered: Sequence[str]) -> TurnState:
    """The state of a turn that waits for answers to calls, given those answered so far."""
    return "answered" if set(waits_for) <= set(answered) else "input_required"
