"""Usage reports: tokens and cost of model calls, aggregated."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime
from typing import Final, Literal, get_args

UsageBy = Literal["day", "app", "agent", "model", "user"]
"""What sums are grouped by; a day is a UTC day, an agent counts per app."""
BY: Final[tuple[UsageBy, ...]] = get_args(UsageBy)
MOST_ROWS: Final = 1_000


@dataclass(frozen=True, slots=True)
class UsageSum:
    """The usage of some model calls. Tokens are as reported; 0 for calls without a report."""

    calls: int = 0
    attempts: int = 0  # of these calls
    turns: int = 0
    input: int = 0
    output: int = 0
    cached: int = 0  # of the input
    reasoning: int = 0  # of the output
    cost: float | None = None  # US dollars, of calls with a known price; None: no price is known
    cut_off: int = 0  # attempts whose worker died: their usage is unknown and in no sum

    @property
    def tokens(self) -> int:
        """Input and output tokens."""
        return self.input + self.output


@dataclass(frozen=True, slots=True)
class UsageRow(UsageSum):
    """A sum and its group; None for fields that the report does not group by."""

    day: date | None = None
    app: str | None = None
    agent: str | None = None
    model: str | None = None
    user: str | None = None


@dataclass(frozen=True, slots=True)
class UsageReport:
    """Sums over a span of time, newest day first, then by descending cost."""

    since: datetime
    until: datetime
    by: tuple[UsageBy, ...]
    total: UsageSum
    rows: tuple[UsageRow, ...]
    more: bool  # whether rows were left out
