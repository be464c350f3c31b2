"""Usage: what model calls took and cost, summed up."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime
from typing import Final, Literal, get_args

UsageBy = Literal["day", "app", "agent", "model", "user"]
"""What sums are told apart by; a day is one of UTC, an agent one inside its app."""
BY: Final[tuple[UsageBy, ...]] = get_args(UsageBy)
MOST_ROWS: Final = 1_000


@dataclass(frozen=True, slots=True)
class UsageSum:
    """What some model calls took. Tokens are as reported; of a call that reported none, 0."""

    calls: int = 0
    attempts: int = 0  # tries of these calls
    turns: int = 0
    input: int = 0
    output: int = 0
    cached: int = 0  # of the input
    reasoning: int = 0  # of the output
    cost: float | None = None  # US dollars, of what has a price; None: nothing has
    cut_off: int = 0  # attempts whose worker died: what they used is not known, and in no figure

    @property
    def tokens(self) -> int:
        """In and out."""
        return self.input + self.output


@dataclass(frozen=True, slots=True)
class UsageRow(UsageSum):
    """A sum, and what it is of; None where that was not asked for."""

    day: date | None = None
    app: str | None = None
    agent: str | None = None
    model: str | None = None
    user: str | None = None


@dataclass(frozen=True, slots=True)
class UsageReport:
    """Sums over a span of time, the newest day first, then the dearest."""

    since: datetime
    until: datetime
    by: tuple[UsageBy, ...]
    total: UsageSum
    rows: tuple[UsageRow, ...]
    more: bool  # whether there are more rows than are shown
