"""Engines and workers, as they see each other.

The database is authoritative: the claim decides which worker runs a turn. An engine only suggests
sessions, so wrong, late or repeated suggestions do no harm.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol

from lango.core.turns.events import End
from lango.store.turns.claim import TurnQueue
from lango.store.turns.rows import Claim, Head
from lango.turns.wake import WakeUps


class RunningAttempt(Protocol):
    """A claimed turn while a worker runs it, as an engine sees it."""

    @property
    def claim(self) -> Claim:
        """The turn, and the right to run it."""
        ...

    @property
    def task(self) -> asyncio.Task[None]:
        """Done when the attempt has ended."""
        ...

    @property
    def end(self) -> End | None:
        """The end of the turn, once the attempt has closed it."""
        ...

    def stop(self) -> None:
        """Ask the agent to end."""
        ...


class EngineWorker(Protocol):
    """A worker, as an engine sees it."""

    @property
    def apps(self) -> Sequence[str]:
        """The apps it has loaded."""
        ...

    @property
    def most_losses(self) -> int:
        """The most workers that a turn may have lost for this worker to run it now."""
        ...

    def may_begin(self, head: Head) -> bool:
        """Whether it would start a session's work, given the turns that it runs now.

        Never when it stops taking work: a poll may have begun before.
        """
        ...

    @property
    def spare(self) -> int:
        """How many turns it can start while it counts as lightly loaded."""
        ...

    async def room(self) -> int:
        """Wait until it can run more turns, and return how many; 0 when it stops taking work."""
        ...

    def is_in(self, session_pk: int) -> bool:
        """Whether it runs a turn of this session."""
        ...

    async def take(self, session_pk: int) -> RunningAttempt | None:
        """Claim a session's work and start it; None if there was nothing to claim."""
        ...


class Engine(Protocol):
    """Finds work for workers."""

    wakes: WakeUps
    queue: TurnQueue
    poll: float  # seconds between two polls for work

    async def open(self) -> None:
        """Start the engine; before any turn is submitted or run."""
        ...

    async def close(self) -> None:
        """Stop the engine; after this no turn is submitted or run."""
        ...

    def dispatch(self, heads: Sequence[Head] = ()) -> None:
        """Bring sessions with work to workers; without heads, workers look which ones have it.

        Called after the commit that gave them work. It may be lost: `run` finds what it missed.
        """
        ...

    def withdraw(self, turn_id: str) -> None:
        """Stop bringing a turn to workers: it was cancelled before it began."""
        ...

    async def run(self, worker: EngineWorker) -> None:
        """Give a worker sessions with work until it takes no more."""
        ...
