"""The state of turns and workers of a database, for its operators."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal

from lango.core.causes import Cause
from lango.core.turns.events import CredentialKind

MAX_SHOWN: Final = 100
"""Rows of a list without pages, unless its caller asks for another number."""
WaitKind = Literal["approval", "credential", "result", "unknown"]
"""What a call waits for: a decision, a user's credential, or a result that is delivered later.

Unknown once the turn's log was deleted."""


@dataclass(frozen=True, slots=True)
class OpenTurnsOfApp:
    """The open turns of an app in one state."""

    app: str
    state: str  # scheduled, queued, running or input_required
    count: int
    oldest: float | None = None
    """Seconds since the oldest queued one could be claimed, or the oldest running one started."""
    tenant: str = ""  # only in a report by tenant


@dataclass(frozen=True, slots=True)
class FleetState:
    """What a database says about its turns and workers at one moment."""

    turns: tuple[OpenTurnsOfApp, ...] = ()
    unowned: tuple[OpenTurnsOfApp, ...] = ()
    """Running turns whose worker has no recent heartbeat, by app."""
    alive: int = 0  # workers with a recent heartbeat
    silent: int = 0  # registered workers without one
    oldest_heartbeat: float | None = None
    """Seconds since the oldest heartbeat of a worker that is alive; None without workers."""
    most_workers_lost: tuple[OpenTurnsOfApp, ...] = ()
    """For each app with running turns: `count` is the most workers that one of them has lost."""

    def count(self, state: str) -> int:
        """The number of open turns in one state."""
        return sum(group.count for group in self.turns if group.state == state)


@dataclass(frozen=True, slots=True)
class RegisteredWorker:
    """A worker that has registered and not unregistered, alive or not."""

    id: str
    state: Literal["alive", "silent"]  # silent: without a recent heartbeat
    host: str
    pid: int
    versions: Mapping[str, str]  # its apps: the name and the fingerprint of each
    started: datetime
    seen: datetime  # its last heartbeat
    silence: float  # seconds since that heartbeat, on the database's clock
    running: int  # turns


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
    tenant: str = ""


@dataclass(frozen=True, slots=True)
class FailedTurn:
    """A turn that failed."""

    turn: str
    session: str
    tenant: str
    app: str
    user: str
    error: str  # its type, as clients see it
    message: str
    error_id: str  # "" if the message says all
    cause: Cause | None  # the exception of your own code; clients do not see it
    attempts: int
    created: datetime
    ended: datetime
    is_answer: bool  # answered a call: such a turn cannot be retried
    retry: str | None  # the turn that it was submitted again as


@dataclass(frozen=True, slots=True)
class WaitingCall:
    """A call that waits for an answer."""

    id: str  # as the answer names it
    kind: WaitKind
    tool: str  # "" if that is unknown
    arguments: str  # the beginning of their JSON
    credential: CredentialKind | None = None


@dataclass(frozen=True, slots=True)
class WaitingTurn:
    """A turn whose calls wait for answers."""

    turn: str
    session: str
    tenant: str
    app: str
    user: str
    since: datetime
    calls: tuple[WaitingCall, ...]
