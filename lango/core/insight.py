"""What the database sums up: usage reports of model calls, and the workload of a tenant."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime
from typing import Final, Literal, get_args

from lango.core.fleet import RunningTurn

UsageBy = Literal["day", "app", "agent", "model", "user"]
"""What sums are grouped by; a day is a UTC day, an agent counts per app."""
BY: Final[tuple[UsageBy, ...]] = get_args(UsageBy)
MAX_ROWS: Final = 1_000


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


@dataclass(frozen=True, slots=True)
class OpenTurns:
    """The number of open turns, by state."""

    scheduled: int = 0
    queued: int = 0
    running: int = 0
    input_required: int = 0  # for a person


@dataclass(frozen=True, slots=True)
class OpenTurnsByApp(OpenTurns):
    """The number of open turns of an app."""

    app: str = ""
    queued_for: float | None = None
    """Seconds since the oldest queued one could be claimed; None if none could be."""


@dataclass(frozen=True, slots=True)
class LiveWorker:
    """A worker with a recent heartbeat."""

    id: str
    apps: tuple[str, ...]
    started: datetime
    seen: datetime
    running: int  # turns of the tenant


@dataclass(frozen=True, slots=True)
class Workload:
    """The workload at one moment."""

    turns: OpenTurns
    oldest_queued: datetime | None  # since when the longest-waiting turn has waited
    running: tuple[RunningTurn, ...]  # the oldest first
    workers: tuple[LiveWorker, ...]
    apps: tuple[OpenTurnsByApp, ...]  # that have open turns, by name
    held: bool  # an operator must release the database before turns run
