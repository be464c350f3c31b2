"""The workload of a tenant: open turns, running turns, and live workers."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final

MOST_RUNNING: Final = 100


@dataclass(frozen=True, slots=True)
class OpenTurns:
    """The number of open turns, by state."""

    scheduled: int = 0
    queued: int = 0
    running: int = 0
    waiting: int = 0  # for a person


@dataclass(frozen=True, slots=True)
class RunningTurn:
    """A running turn."""

    turn: str
    session: str
    app: str
    user: str
    worker: str
    started: datetime
    attempts: int


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
