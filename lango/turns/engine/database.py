"""The engine that needs nothing but the database: workers poll the queue in the turns table."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import Counter
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Final

from lango.store.turns.claim import TurnQueue
from lango.store.turns.rows import Head
from lango.turns.engine.opened import OpenedEngine
from lango.turns.engine.protocol import Engine, EngineWorker
from lango.turns.wake import WORK, Subscription

logger = logging.getLogger(__name__)

_AT_A_TIME: Final = 16
_SLOW_CLAIM: Final = 0.5
"""Seconds after which the next sessions are claimed although a claim is still in progress."""
_AFTER_A_FAULT: Final = 1.0
_IDLE: Final = 60.0


class LocalEngine(OpenedEngine):
    """The database alone: wake-ups notify workers, and workers poll."""

    _next_promotion = 0.0

    def dispatch(self, heads: Sequence[Head] = ()) -> None:
        """Wake the workers, which then poll; not for turns that start later: workers find them."""
        now = time.time()
        if not heads or any(head.run_at is None or head.run_at <= now for head in heads):
            self.wakes.tell(WORK)

    def withdraw(self, turn_id: str) -> None:
        """Do nothing: workers poll for turns that wait."""

    async def run(self, worker: EngineWorker) -> None:
        """Give a worker sessions with work until it takes no more; retry if the database fails."""
        dispatch = _Dispatch(self.queue, worker, self.poll)
        with self.wakes.hear(WORK) as ear:
            try:
                while room := await worker.room():
                    try:
                        await self._promote()
                        if not await dispatch.hand_over(room):
                            await ear.wait(self.poll)
                    except Exception:
                        logger.exception("Looking for turns failed; it is tried again.")
                        await asyncio.sleep(_AFTER_A_FAULT)
                await dispatch.finish()
            finally:
                await dispatch.cancel()

    async def _promote(self) -> None:
        if time.monotonic() >= self._next_promotion:
            await self.queue.promote_due()
            self._next_promotion = time.monotonic() + self.poll


class _Dispatch:
    """Claims sessions for one worker, each independently: a slow claim does not delay the others.

    A session that could not be claimed, for example because its row is locked, is skipped for one
    polling interval.
    """

    def __init__(self, queue: TurnQueue, worker: EngineWorker, poll: float) -> None:
        self._queue, self._worker, self._poll = queue, worker, poll
        self._claims: dict[int, asyncio.Task[bool]] = {}
        self._skipped: dict[int, float] = {}  # sessions, and until when

    async def hand_over(self, room: int) -> bool:
        """Poll for work once; True if the caller should poll again without waiting."""
        at_once = min(room - len(self._claims), _AT_A_TIME)
        if at_once <= 0:
            await asyncio.wait(
                self._claims.values(), timeout=self._poll, return_when=asyncio.FIRST_COMPLETED
            )
            return True
        left_out = self._left_out()
        most = 2 * at_once + len(left_out)
        heads = await self._queue.heads(self._worker.apps, most, self._worker.most_losses)
        may_begin = self._worker.may_begin
        free = [head for head in heads if head.session_pk not in left_out and may_begin(head)]
        # Workers that poll at the same moment see the same sessions: each picks at random.
        chosen = random.sample(free, min(at_once, len(free)))
        claims = [self._claim(head.session_pk) for head in chosen]
        if not claims:
            return False
        done, _ = await asyncio.wait(claims, timeout=_SLOW_CLAIM)
        begun = any(not claim.cancelled() and claim.result() for claim in done)
        return begun and len(free) > len(chosen)

    def _left_out(self) -> set[int]:
        now = time.monotonic()
        self._skipped = {pk: until for pk, until in self._skipped.items() if until > now}
        return self._skipped.keys() | self._claims.keys()

    def _claim(self, session_pk: int) -> asyncio.Task[bool]:
        claim = asyncio.create_task(self._take(session_pk))
        self._claims[session_pk] = claim
        claim.add_done_callback(lambda _: self._claims.pop(session_pk))
        return claim

    async def _take(self, session_pk: int) -> bool:
        begun = False
        try:
            begun = await self._worker.take(session_pk) is not None
        except Exception:
            logger.exception("A session could not be claimed; it is tried again.")
        if not begun:
            self._skipped[session_pk] = time.monotonic() + self._poll
        return begun

    async def finish(self) -> None:
        """Wait for the claims in progress."""
        if self._claims:
            await asyncio.wait(list(self._claims.values()))

    async def cancel(self) -> None:
        """Cancel the claims in progress."""
        claims = list(self._claims.values())
        for claim in claims:
            claim.cancel()
        await asyncio.gather(*claims, return_exceptions=True)


class ChosenSessions:
    """Dispatches only the sessions that callers in this process wait for.

    For a process that runs only its own turns. It wraps another engine, which that engine's owner
    opens and closes.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.wakes = engine.wakes
        self.queue = engine.queue
        self.poll = engine.poll
        self._chosen: Counter[int] = Counter()
        self._ears: set[Subscription] = set()

    async def open(self) -> None:
        """Do nothing: its owner opens the wrapped engine."""

    async def close(self) -> None:
        """Do nothing: its owner closes the wrapped engine."""

    def dispatch(self, heads: Sequence[Head] = ()) -> None:
        """Dispatch as the wrapped engine does: other processes may run what this one hands in."""
        self._engine.dispatch(heads)

    def withdraw(self, turn_id: str) -> None:
        """Withdraw as the wrapped engine does."""
        self._engine.withdraw(turn_id)

    @contextmanager
    def choose(self, session_pk: int) -> Generator[None]:
        """Dispatch this session's work to workers inside the context."""
        self._chosen[session_pk] += 1
        for ear in self._ears:
            ear.wake()
        try:
            yield
        finally:
            self._chosen[session_pk] -= 1
            if not self._chosen[session_pk]:
                del self._chosen[session_pk]

    async def run(self, worker: EngineWorker) -> None:
        """Give a worker chosen sessions until it takes no more; retry if the database fails."""
        with self.wakes.hear(WORK) as ear:
            self._ears.add(ear)
            try:
                while await worker.room():
                    if not await self._hand_over(worker):
                        await ear.wait(self.poll if self._chosen else _IDLE)
            finally:
                self._ears.discard(ear)

    async def _hand_over(self, worker: EngineWorker) -> bool:
        """Try once to claim the chosen sessions that the worker does not run; True if one began."""
        idle = [session_pk for session_pk in self._chosen if not worker.is_in(session_pk)]
        try:
            begun = await asyncio.gather(*map(worker.take, idle))
            return any(attempt is not None for attempt in begun)
        except Exception:
            logger.exception("Looking for turns failed; it is tried again.")
            await asyncio.sleep(_AFTER_A_FAULT)
            return False
