"""The life of a turn in the queue: its states, what may follow which, and what is handed in."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256
from typing import Any, ClassVar, Final, Literal

from lango.core.ids import check_id
from lango.core.turn_inputs import as_asked
from lango.core.turns import Event
from lango.core.values import JsonObject, storable_json
from lango.errors import InvalidRunAtError, InvalidTimeLimitError

TurnState = Literal[
    "scheduled",  # outside the order until it is due
    "queued",
    "running",
    "completed",
    "failed",
    "cancelled",
    "waiting",  # the run is over; a person's answer will be a turn of its own
    "answered",
]

NEXT: Final[Mapping[TurnState, frozenset[TurnState]]] = {
    "scheduled": frozenset({"queued", "cancelled"}),
    "queued": frozenset({"running", "cancelled"}),
    "running": frozenset({"completed", "failed", "cancelled", "waiting"}),
    "completed": frozenset(),
    "failed": frozenset(),
    "cancelled": frozenset(),
    "waiting": frozenset({"answered"}),
    "answered": frozenset({"waiting"}),  # its answer's turn ended before it stored the answer
}
"""What a turn may become. A turn that is taken over by another worker stays `running`."""

PENDING: Final = frozenset[TurnState]({"scheduled", "queued"})
"""Not begun: nothing of such a turn is anywhere but in its row, so the row alone can end it."""

Busy = Literal["enqueue", "reject", "interrupt"]
"""What a new turn does in a session that has others: wait in order, be refused, or go first."""

MAX_ATTEMPTS: Final = 5
"""After so many that lost their worker a turn is given up; those handed over do not count."""
MIN_ALONE: Final = 2
"""And only if it was the one to suspect for so many of these deaths: others are as likely."""
SUSPECT_AFTER: Final = 2
"""Workers lost, after which a turn is run with care."""
SUSPECTS_TOGETHER: Final = 8
"""Suspects that a worker runs at a time; one that has lost more workers is the only one."""
ANY_LOSSES: Final = 1_000_000
"""More workers than a turn can lose."""
TIME_LIMIT: Final = 3600.0
"""Seconds a turn may run, over all its attempts, unless it says otherwise."""
MAX_TIME_LIMIT: Final = 30 * 24 * 3600.0
"""The longest time limit that a turn may have, in seconds."""


@dataclass(frozen=True, slots=True)
class NewTurn:
    """A turn as it is handed in."""

    input: JsonObject
    options: JsonObject = field(default_factory=dict[str, Any])
    idempotency_key: str | None = None
    run_at: datetime | None = None  # aware; the turn stays out of the order until then
    time_limit: float = TIME_LIMIT
    key_id: str | None = None  # the API key, or token's user, whose limits it counts towards
    cost_limit: float | None = None  # US dollars: once that caller's day has cost so much, it fails

    def checked(self) -> NewTurn:
        """This turn as the store can keep it.

        InvalidIdError if its key is no id, InvalidTimeLimitError if its limit is no time to run,
        InvalidRunAtError if `run_at` is no moment.
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
        )

    def hash(self, app: str, *answers: str) -> str:
        """What makes two turns under one idempotency key the same: SHA-256, in hex.

        The message, the names of its files, the app, the options and the call it answers (by
        invocation and id) count; how soon it runs does not.
        """
        told: JsonObject = {"app": app, "input": as_asked(self.input), "options": self.options}
        if answers:
            told["answers"] = answers
        canonical = json.dumps(told, sort_keys=True, separators=(",", ":"), allow_nan=False)
        return sha256(canonical.encode()).hexdigest()


def _is_time_limit(given: Any) -> bool:
    """Whether a number is a time limit; a comparison with NaN is false."""
    is_number = isinstance(given, int | float) and not isinstance(given, bool)
    return is_number and 0 < given <= MAX_TIME_LIMIT


def _is_moment(given: Any) -> bool:
    """Whether a time means the same everywhere, and is one in every time zone."""
    is_aware = isinstance(given, datetime) and given.utcoffset() is not None
    return is_aware and 1971 <= given.year <= 9998


def kept_time_limit(stored: float) -> float:
    """The time limit of a stored turn, which code before this check may have written unchecked."""
    if math.isnan(stored):
        return TIME_LIMIT
    return min(max(stored, 0.0), MAX_TIME_LIMIT)


@dataclass(frozen=True, slots=True)
class Accepted(Event):
    """The turn is safe: it will run, whatever becomes of who took it in."""

    type: ClassVar[str] = "accepted"
    number: int  # in its session
    run_at: str | None = None


def most_losses_beside(held: Sequence[int]) -> int:
    """How many workers a turn may have lost to be run beside turns that have lost so many."""
    suspects = [losses for losses in held if losses >= SUSPECT_AFTER]
    if not suspects:
        return ANY_LOSSES
    alike = max(suspects) == SUSPECT_AFTER and len(suspects) < SUSPECTS_TOGETHER
    return SUSPECT_AFTER if alike else SUSPECT_AFTER - 1


def waits_on(waits_for: Sequence[str], answered: Sequence[str]) -> TurnState:
    """The state of a turn whose calls went to a person, once some of them are answered."""
    return "answered" if set(waits_for) <= set(answered) else "waiting"
