"""The workload of a tenant: what waits, what runs, and who is there to run it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final

MOST_RUNNING: Final = 100


@dataclass(frozen=True, slots=True)
class OpenTurns:
    """How many turns are not over, by their state."""

    scheduled: int = 0
    queued: int = 0
    running: int = 0
    waiting: int = 0  # for a person


@dataclass(frozen=True, slots=True)
class RunningTurn:
    """A turn that runs."""

    turn: str
    session: str
    app: str
    user: str
    worker: str
    started: datetime
    attempts: int


@dataclass(frozen=True, slots=True)
class LiveWorker:
    """A worker that lives."""

    id: str
    apps: tuple[str, ...]
    started: datetime
    seen: datetime
    running: int  # turns of the tenant


@dataclass(frozen=True, slots=True)
class Workload:
    """All of it at one moment."""

    turns: OpenTurns
    oldest_queued: datetime | None  # since when the turn waits that waits longest
    running: tuple[RunningTurn, ...]  # the oldest first
    workers: tuple[LiveWorker, ...]
