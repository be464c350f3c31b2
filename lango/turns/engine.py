"""What brings sessions that have work to the workers that do it.

The tables hold the truth: who may run what is decided by the claim. An engine only says where to
look, so one that says too much or too late breaks nothing.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import Counter
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Final, Protocol, Self

from lango.store.database import Database
from lango.store.turn_queue import DEAD_AFTER, TurnQueue
from lango.store.turn_rows import OnHead
from lango.turns.wake import WORK, Ear, Wakes

logger = logging.getLogger(__name__)

POLL_SQLITE: Final = 0.25
POLL_POSTGRES: Final = 1.0
_AT_A_TIME: Final = 16
_AFTER_A_FAULT: Final = 1.0
_IDLE: Final = 60.0


class Hands(Protocol):
    """A worker, as an engine sees it."""

    @property
    def apps(self) -> Sequence[str]:
        """The apps it has loaded."""
        ...

    @property
    def most_losses(self) -> int:
        """How many workers a turn may have lost that it would run now."""
        ...

    async def room(self) -> int:
        """How many more turns it would run, once that is any; 0 when it wants no more work."""
        ...

    def is_in(self, session_pk: int) -> bool:
        """Whether it runs a turn of this session."""
        ...

    async def take(self, session_pk: int) -> bool:
        """Begin what a session has to do; False if there was nothing to be had."""
        ...


class Engine(Protocol):
    """Finds work for workers."""

    wakes: Wakes
    queue: TurnQueue
    on_head: OnHead | None  # called in the transaction that gives a session work
    poll: float  # seconds after which who waits for work looks by itself

    async def open(self) -> None:
        """Begin; before anything is submitted or run."""
        ...

    async def close(self) -> None:
        """End; nothing is submitted or run after."""
        ...

    async def run(self, worker: Hands) -> None:
        """Hand work to a worker until it wants no more."""
        ...


class LocalEngine:
    """No engine but the database: workers are woken, and look for themselves now and then."""

    on_head: OnHead | None = None

    def __init__(
        self, database: Database, *, dead_after: float = DEAD_AFTER, poll: float | None = None
    ) -> None:
        self.wakes = Wakes(database)
        self.queue = TurnQueue(database, dead_after=dead_after)
        self._next_promotion = 0.0
        self.poll = poll or (POLL_SQLITE if database.is_sqlite else POLL_POSTGRES)

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def open(self) -> None:
        """Begin to hear of work elsewhere."""
        self.wakes.open()

    async def close(self) -> None:
        """Stop hearing."""
        await self.wakes.close()

    async def run(self, worker: Hands) -> None:
        """Hand work to a worker until it wants no more; a database that fails is waited for."""
        with self.wakes.hear(WORK) as ear:
            while room := await worker.room():
                try:
                    if not await self._hand_over(worker, room):
                        await ear.wait(self.poll)
                except Exception:
                    logger.exception("Looking for turns failed; it is tried again.")
                    await asyncio.sleep(_AFTER_A_FAULT)

    async def _hand_over(self, worker: Hands, room: int) -> bool:
        """One look for work; whether some was begun and more was seen."""
        if time.monotonic() >= self._next_promotion:
            await self.queue.promote_due()
            self._next_promotion = time.monotonic() + self.poll
        at_once = min(room, _AT_A_TIME)
        heads = await self.queue.heads(worker.apps, 2 * at_once, worker.most_losses)
        # Workers that look at the same moment see the same: each begins somewhere else.
        chosen = random.sample(heads, min(at_once, len(heads)))
        begun = any(await asyncio.gather(*(worker.take(head.session_pk) for head in chosen)))
        return begun and len(heads) > len(chosen)


class ChosenSessions:
    """Hands over the sessions that somebody here waits for, and no others.

    For a process that runs its own turns only. It stands on another engine, whose owner opens and
    closes that.
    """

    def __init__(self, engine: Engine) -> None:
        self.wakes = engine.wakes
        self.queue = engine.queue
        self.on_head = engine.on_head
        self.poll = engine.poll
        self._chosen: Counter[int] = Counter()
        self._ears: set[Ear] = set()

    async def open(self) -> None:
        """Nothing: the engine below is its owner's to open."""

    async def close(self) -> None:
        """Nothing: the engine below is its owner's to close."""

    @contextmanager
    def choose(self, session_pk: int) -> Generator[None]:
        """Inside, what this session has to do is handed over."""
        self._chosen[session_pk] += 1
        for ear in self._ears:
            ear.wake()
        try:
            yield
        finally:
            self._chosen[session_pk] -= 1
            if not self._chosen[session_pk]:
                del self._chosen[session_pk]

    async def run(self, worker: Hands) -> None:
        """Hand work to a worker until it wants no more; a database that fails is waited for."""
        with self.wakes.hear(WORK) as ear:
            self._ears.add(ear)
            try:
                while await worker.room():
                    if not await self._hand_over(worker):
                        await ear.wait(self.poll if self._chosen else _IDLE)
            finally:
                self._ears.discard(ear)

    async def _hand_over(self, worker: Hands) -> bool:
        """One look at the sessions in which it runs nothing; whether anything was begun."""
        idle = [session_pk for session_pk in self._chosen if not worker.is_in(session_pk)]
        try:
            return any(await asyncio.gather(*map(worker.take, idle)))
        except Exception:
            logger.exception("Looking for turns failed; it is tried again.")
            await asyncio.sleep(_AFTER_A_FAULT)
            return False
