"""The engine that needs nothing but the database: workers poll the queue in the turns table."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Final

from lango.core.failpoints import failpoint
from lango.store.turns.claim import TurnQueue
from lango.store.turns.rows import Head
from lango.turns.engine.opened import OpenedEngine
from lango.turns.engine.protocol import Engine, EngineWorker
from lango.turns.wake import WORK, Subscription

logger = logging.getLogger(__name__)

_MAX_CONCURRENT_CLAIMS: Final = 16
_CLAIM_WAIT: Final = 0.5
"""Seconds after which the next sessions are claimed although a claim is still in progress."""
_RETRY_AFTER_FAULT: Final = 1.0
_IDLE: Final = 60.0


class LocalEngine(OpenedEngine):
    """The database alone: wake-ups notify workers, and workers poll."""

    _next_promotion = 0.0
    _dispatches: tuple[_Dispatch, ...] = ()
    """Of the workers that run in this process."""

    def dispatch(self, heads: Sequence[Head] = ()) -> None:
        """Give heads to a worker of this process that has few turns; else let all workers poll.

        Not for turns that start later: workers find them.
        """
        failpoint("engine.dispatch")
        now = time.time()
        due = [head for head in heads if head.run_at is None or head.run_at <= now]
        is_begun = bool(due) and all(self._begin(head) for head in due)
        if not is_begun and (due or not heads):
            self.wakes.notify(WORK)
        failpoint("engine.dispatched")

    def _begin(self, head: Head) -> bool:
        return any(dispatch.begin(head) for dispatch in self._dispatches)

    def withdraw(self, turn_id: str) -> None:
        """Do nothing: workers poll for turns that wait."""

    async def run(self, worker: EngineWorker) -> None:
        """Give a worker sessions with work until it takes no more; retry if the database fails."""
        dispatch = _Dispatch(self.queue, worker, self.poll, partial(self.wakes.notify, WORK))
        with self.wakes.subscribe(WORK) as subscription:
            self._dispatches += (dispatch,)
            try:
                while room := await worker.room():
                    try:
                        await self._promote()
                        if not await dispatch.hand_over(room):
                            await subscription.wait(self.poll)
                    except Exception:
                        logger.exception("Polling for turns failed; retrying.")
                        await asyncio.sleep(_RETRY_AFTER_FAULT)
                await dispatch.finish()
            finally:
                self._dispatches = tuple(d for d in self._dispatches if d is not dispatch)
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

    def __init__(
        self, queue: TurnQueue, worker: EngineWorker, poll: float, wake_workers: Callable[[], None]
    ) -> None:
        self._queue, self._worker, self._poll = queue, worker, poll
        self._wake_workers = wake_workers  # wakes all workers
        self._claims: dict[int, asyncio.Task[bool]] = {}
        self._skipped: dict[int, float] = {}  # sessions, and until when
        self._others_wait = True  # as far as the last poll has shown
        self._unpolled: set[int] = set()  # sessions claimed without a poll since the last began

    def begin(self, head: Head) -> bool:
        """Claim a session's work without a poll; False if that might not be fair, or not possible.

        If the claim fails, all workers poll.
        """
        has_room = self._worker.spare > len(self._claims)
        is_new = head.session_pk not in self._claims and head.app in self._worker.apps
        if self._others_wait or not (has_room and is_new):
            return False
        self._unpolled.add(head.session_pk)
        self._claim(head.session_pk).add_done_callback(self._wake_unless_begun)
        return True

    def _wake_unless_begun(self, claim: asyncio.Task[bool]) -> None:
        if claim.cancelled() or not claim.result():
            self._wake_workers()

    async def hand_over(self, room: int) -> bool:
        """Poll for work once; True if the caller should poll again without waiting."""
        slots = min(room - len(self._claims), _MAX_CONCURRENT_CLAIMS)
        if slots <= 0:
            await asyncio.wait(
                self._claims.values(), timeout=self._poll, return_when=asyncio.FIRST_COMPLETED
            )
            return True
        self._unpolled.clear()
        limit = 2 * slots + len(self._left_out())
        heads = await self._queue.heads(self._worker.apps, limit, self._worker.most_losses)
        # What was claimed during the poll is left out, too: its rows may be from before the claim.
        left_out, may_begin = self._left_out(), self._worker.may_begin
        free = [head for head in heads if head.session_pk not in left_out and may_begin(head)]
        slots = max(min(slots, room - len(self._claims)), 0)  # others may have begun meanwhile
        # Workers that poll at the same moment see the same sessions: each picks at random.
        heads_to_claim = random.sample(free, min(slots, len(free)))
        self._others_wait = len(free) > len(heads_to_claim)
        claims = [self._claim(head.session_pk) for head in heads_to_claim]
        if not claims:
            return False
        done, _ = await asyncio.wait(claims, timeout=_CLAIM_WAIT)
        has_begun = any(not claim.cancelled() and claim.result() for claim in done)
        return has_begun and self._others_wait

    def _left_out(self) -> set[int]:
        now = time.monotonic()
        self._skipped = {pk: until for pk, until in self._skipped.items() if until > now}
        return self._skipped.keys() | self._claims.keys() | self._unpolled

    def _claim(self, session_pk: int) -> asyncio.Task[bool]:
        claim = asyncio.create_task(self._take(session_pk))
        self._claims[session_pk] = claim
        claim.add_done_callback(lambda _: self._claims.pop(session_pk))
        return claim

    async def _take(self, session_pk: int) -> bool:
        is_claimed = False
        try:
            is_claimed = await self._worker.take(session_pk) is not None
        except Exception:
            logger.exception("A session could not be claimed; retrying.")
        if not is_claimed:
            self._skipped[session_pk] = time.monotonic() + self._poll
        return is_claimed

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
        self._subscriptions: set[Subscription] = set()

    async def open(self) -> None:
        """Do nothing: its owner opens the wrapped engine."""

    async def close(self) -> None:
        """Do nothing: its owner closes the wrapped engine."""

    def dispatch(self, heads: Sequence[Head] = ()) -> None:
        """Dispatch as the wrapped engine does: other processes may run what this one submits."""
        self._engine.dispatch(heads)

    def withdraw(self, turn_id: str) -> None:
        """Withdraw as the wrapped engine does."""
        self._engine.withdraw(turn_id)

    @contextmanager
    def choose(self, session_pk: int) -> Generator[None]:
        """Dispatch this session's work to workers inside the context."""
        self._chosen[session_pk] += 1
        for subscription in self._subscriptions:
            subscription.wake()
        try:
            yield
        finally:
            self._chosen[session_pk] -= 1
            if not self._chosen[session_pk]:
                del self._chosen[session_pk]

    async def run(self, worker: EngineWorker) -> None:
        """Give a worker chosen sessions until it takes no more; retry if the database fails."""
        with self.wakes.subscribe(WORK) as subscription:
            self._subscriptions.add(subscription)
            try:
                while await worker.room():
                    if not await self._hand_over(worker):
                        await subscription.wait(self.poll if self._chosen else _IDLE)
            finally:
                self._subscriptions.discard(subscription)

    async def _hand_over(self, worker: EngineWorker) -> bool:
        """Try once to claim the chosen sessions that the worker does not run; True if one began."""
        idle = [session_pk for session_pk in self._chosen if not worker.is_in(session_pk)]
        try:
            attempts = await asyncio.gather(*map(worker.take, idle))
            return any(attempt is not None for attempt in attempts)
        except Exception:
            logger.exception("Polling for turns failed; retrying.")
            await asyncio.sleep(_RETRY_AFTER_FAULT)
            return False
