"""A worker: claims turns of the apps it has loaded, runs them concurrently, and closes them."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import socket
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Self

from lango.adk.durable.giving_up import UnloadedApp
from lango.core.failpoints import failpoint
from lango.core.ids import new_id
from lango.core.turns.events import Started
from lango.core.turns.states import most_losses_beside
from lango.errors import DatabaseHeldError, ObjectStoreError
from lango.store.files.cleanup import ObjectCleanup
from lango.store.memory.vectors import EntryVectors
from lango.store.sessions.store import SqlSessionStore
from lango.store.turns.log import TurnLog, logged_events, types_and_data
from lango.store.turns.rows import Claim, Head
from lango.store.turns.workers import Worker, Workers
from lango.telemetry.metrics.switch import metrics
from lango.turns.attempt import Attempt, LoadedApp, WorkerContext
from lango.turns.embeddings import EntryEmbedding
from lango.turns.engine.database import ChosenSessions
from lango.turns.engine.protocol import Engine
from lango.turns.heartbeat import HANG_AFTER, Heartbeat
from lango.turns.log.feeds import AttemptOver, Feeds
from lango.turns.log.writer import LogWriter
from lango.turns.metrics import TurnMetrics
from lango.turns.wake import STOP, WORK

logger = logging.getLogger(__name__)

DRAIN: Final = 30.0
"""Seconds that running turns have to end when their worker stops."""
_STOP_POLL_SQLITE: Final = 0.1
_STOP_POLL_POSTGRES: Final = 1.0
_UPKEEP_EVERY: Final = 60.0
_RETRY_AFTER_FAULT: Final = 1.0
_ASK_FOR_RELEASE: Final = 1.0
_RESERVED_PART: Final = 4
_LIGHT_PART: Final = 8
_FEW_OF_RESERVE: Final = 4  # a tenant may use this fraction of the reserve
_SILENT_WORKERS_FOR: Final = 24 * 3600.0


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """Options of a worker."""

    concurrency: int = 100  # turns: most of them wait for a model
    hang_after: float = HANG_AFTER  # seconds without a tick of the event loop
    event_retention_seconds: float = 24 * 3600.0  # seconds after a turn's end
    drain: float = DRAIN  # seconds that turns have to end when the worker stops
    app_gone_after: float = 900.0  # seconds in which no worker has loaded the app of a lost turn

    @property
    def reserve(self) -> int:
        """Turns that it runs beyond `concurrency`, for tenants that have few running."""
        return self.concurrency // _RESERVED_PART

    @property
    def most(self) -> int:
        """The most turns that it runs concurrently, including the reserve."""
        return self.concurrency + self.reserve


class TurnWorker:
    """Runs turns from `start` to `stop`; any number of workers share a database.

    The caller opens the engine. If a worker dies or hangs, another worker resumes its turns; a
    worker that recovers can no longer write to them.
    """

    def __init__(
        self,
        store: SqlSessionStore,
        engine: Engine,
        apps: Mapping[str, LoadedApp],
        options: WorkerOptions | None = None,
        feeds: Feeds | None = None,
    ) -> None:
        self.options = options or WorkerOptions()
        self._engine = engine
        self._apps = dict(apps)
        self._store = store
        self._log = TurnLog(store.database)
        self._writer = LogWriter(self._log, engine.wakes)
        self._feeds = feeds or Feeds()
        if metrics.recorder is not None:
            self._feeds.observer = TurnMetrics(metrics.recorder).observe
        self._context = WorkerContext(store, engine.queue, self._log, self._writer, self._feeds)
        self._attempts: dict[str, Attempt] = {}
        self._claiming: set[str] = set()  # claims in progress
        self._unloaded: dict[int, float] = {}  # sessions whose app no worker has, since when
        self._unaccounted: set[str] = set()  # claims whose outcome the worker does not know
        self._handed_over: list[str] = []  # claims, until the database has recorded it
        self._changed = asyncio.Event()
        self._embedding = {
            name: EntryEmbedding(EntryVectors(store.database), name, app.embedder)
            for name, app in self._apps.items()
            if app.embedder is not None
        }
        self._wants_work = False
        self._dispatching: asyncio.Task[None] | None = None
        self._loops: list[asyncio.Task[Any]] = []
        self.worker = self._new_worker()
        self._heartbeat = Heartbeat(
            store.database,
            self.worker,
            dead_after=engine.queue.dead_after,
            hang_after=self.options.hang_after,
        )

    def _new_worker(self) -> Worker:
        prints = {name: app.fingerprint for name, app in self._apps.items()}
        return Worker(new_id("wrk"), prints, socket.gethostname(), os.getpid())

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Register the worker and start to claim turns; DatabaseHeldError if none may run."""
        if metrics.recorder is not None:
            metrics.recorder.expect(self._apps)
        await self._heartbeat.start()
        self._wants_work = True
        loops = (self._writer.run(), self._repeat(self._watch), self._repeat(self._do_upkeep))
        embedding = (self._repeat(entries.step) for entries in self._embedding.values())
        self._loops = [asyncio.create_task(loop) for loop in (*loops, *embedding)]
        if not isinstance(self._engine, ChosenSessions):  # that one runs only its callers' turns
            self._loops.append(asyncio.create_task(self._repeat(self._close_unloaded)))
        self._dispatching = asyncio.create_task(self._engine.run(self))

    async def start_when_released(self) -> None:
        """Start; while an operator holds the database, wait for its release."""
        is_logged = False
        while True:
            try:
                return await self.start()
            except DatabaseHeldError as error:
                if not is_logged:
                    logger.warning("%s", error)
                is_logged = True
            await asyncio.sleep(_ASK_FOR_RELEASE)

    async def stop(self, drain: float | None = None) -> None:
        """Claim no more turns, let the running ones end, and hand the rest to other workers.

        Running turns have `drain` seconds (default: the option `drain`).
        """
        self._wants_work = False
        self._changed.set()
        self._engine.wakes.wake(WORK)  # the engine may be waiting for work
        try:
            async with asyncio.timeout(self.options.drain if drain is None else drain):
                if self._dispatching is not None:
                    await asyncio.wait([self._dispatching])
                while self._attempts:
                    await asyncio.wait([attempt.task for attempt in self._attempts.values()])
        except TimeoutError:
            logger.warning("Turns that other workers take over: %d.", len(self._attempts))
        await self._end()

    async def _end(self) -> None:
        remaining = list(self._attempts.values())
        self._handed_over += [claim for attempt in remaining for claim in attempt.claim_ids]
        self._handed_over += [*self._claiming, *self._unaccounted]
        for attempt in remaining:
            attempt.abandon()
        loops = [*self._loops, self._dispatching] if self._dispatching else self._loops
        for loop in loops:
            loop.cancel()
        await asyncio.gather(
            *(attempt.task for attempt in remaining), *loops, return_exceptions=True
        )
        await self._heartbeat.stop(self._handed_over)
        self._handed_over = []
        if remaining:
            self._engine.dispatch()

    @property
    def is_running(self) -> bool:
        """Whether it claims turns."""
        return self._wants_work and self._dispatching is not None and not self._dispatching.done()

    @property
    def apps(self) -> Sequence[str]:
        """The names of the apps it has loaded."""
        return tuple(self._apps)

    @property
    def may_take_over(self) -> bool:
        """Whether it may treat workers with missing heartbeats as dead."""
        return self._heartbeat.contact.is_sure

    @property
    def most_losses(self) -> int:
        """The most workers that a turn may have lost to run beside the turns it runs now."""
        run = [
            attempt.claim for attempt in self._attempts.values() if attempt.claim.verdict is None
        ]
        return most_losses_beside([claim.losses for claim in run])

    async def room(self) -> int:
        """Wait until it can run more turns, and return how many; 0 when it is stopping.

        A crowded worker counts its reserve.
        """
        while self._wants_work and len(self._attempts) >= self.options.most:
            self._changed.clear()
            await self._changed.wait()
        allowed = self.options.most if self.is_crowded else self.options.concurrency
        return allowed - len(self._attempts) if self._wants_work else 0

    @property
    def spare(self) -> int:
        """How many turns it can start while it counts as lightly loaded: others may be idle."""
        light = max(self.options.concurrency // _LIGHT_PART, 1)
        return light - len(self._attempts) if self._wants_work else 0

    @property
    def is_crowded(self) -> bool:
        """Whether it runs `concurrency` turns or more."""
        return len(self._attempts) >= self.options.concurrency

    def may_begin(self, head: Head) -> bool:
        """Whether it would start a session's work; no more when it is stopping.

        The reserve lets other tenants in when one tenant's long turns fill the worker.
        """
        if not self._wants_work:
            return False
        if self.is_crowded:
            few = max(self.options.reserve // _FEW_OF_RESERVE, 1)
            return not head.lost and head.rank <= few
        return self.may_take_over or not head.lost

    @property
    def running(self) -> int:
        """The number of turns it runs."""
        return len(self._attempts)

    @property
    def heartbeat_age(self) -> float:
        """Seconds since its last heartbeat reached the database."""
        return self._heartbeat.contact.age

    @property
    def left_behind(self) -> int:
        """The number of agent runs that ignored their cancellation and still run, fenced out."""
        return len(self._context.abandoned_runs)

    def is_in(self, session_pk: int) -> bool:
        """Whether it runs a turn of this session."""
        return any(
            attempt.claim.turn.session_pk == session_pk for attempt in self._attempts.values()
        )

    async def take(self, session_pk: int) -> Attempt | None:
        """Claim a session's work and start it; None if there was nothing to claim."""
        claim = partial(self._engine.queue.claim, take_over=self.may_take_over)
        return await self._begin(lambda claim_id: claim(session_pk, self.worker, claim_id))

    async def _begin(self, make: Callable[[str], Awaitable[Claim | None]]) -> Attempt | None:
        """Make a claim and start its attempt; None if there was nothing to claim."""
        claim_id = new_id("clm")
        self._claiming.add(claim_id)
        began = time.time_ns()
        try:
            failpoint("claim.before")
            claim = await make(claim_id)
            if claim is None:
                return None
            failpoint("claim.after")
            app = self._apps.get(claim.turn.session.app_name) or UnloadedApp(self._store)
            attempt = Attempt(self._context, app, claim, began=began)
            self._attempts[claim.id] = attempt
        except BaseException:
            self._unaccounted.add(claim_id)  # the database may hold it anyway
            raise
        finally:
            self._claiming.discard(claim_id)
        self._publish_start(claim)
        attempt.task.add_done_callback(lambda _: self._ended(attempt, claim_id))
        return attempt

    def _publish_start(self, claim: Claim) -> None:
        """Pass the event that a first claim has logged to the readers; else let them read it."""
        turn = claim.turn
        if turn.attempts == 1 and turn.started is not None and claim.verdict is None:
            started = types_and_data([Started(turn.attempts)])
            logged = logged_events(started, turn.last_event, claim.epoch, turn.started)
            self._engine.wakes.publish_events({turn.id: logged})
        else:
            self._engine.wakes.notify(turn.id)

    async def _close_unloaded(self) -> None:
        """Close lost turns of apps that no living worker has loaded, as far as they are to end.

        An app may be missing for a while, as in a deployment: its turns wait `app_gone_after`
        seconds for it.
        """
        await asyncio.sleep(self._engine.queue.dead_after)
        now, session_pks = time.monotonic(), await self._engine.queue.unloaded()
        self._unloaded = {pk: self._unloaded.get(pk, now) for pk in session_pks}
        for pk, since in self._unloaded.items():
            if self.may_take_over and not self.is_crowded:
                app_gone = now - since >= self.options.app_gone_after
                await self._take_unloaded(pk, app_gone=app_gone)

    async def _take_unloaded(self, session_pk: int, *, app_gone: bool) -> None:
        queue = self._engine.queue

        async def claim(claim_id: str) -> Claim | None:
            return await queue.claim_unloaded(session_pk, self.worker, claim_id, app_gone=app_gone)

        await self._begin(claim)

    def _ended(self, attempt: Attempt, claim_id: str) -> None:
        self._attempts.pop(claim_id, None)
        self._changed.set()
        self._feeds.publish(attempt.claim.turn, AttemptOver(attempt.end))
        if attempt.closed is not None:
            self._engine.wakes.close_log(attempt.closed.turn, attempt.last_events)
            if attempt.closed.next is not None:
                self._engine.dispatch([attempt.closed.next])
            if (embedding := self._embedding.get(attempt.closed.turn.session.app_name)) is not None:
                embedding.wake()
        else:
            self._unaccounted |= attempt.claim_ids
        if not attempt.task.cancelled() and (error := attempt.task.exception()) is not None:
            logger.error("Turn %s was not closed.", attempt.claim.turn.id, exc_info=error)

    async def _repeat(self, step: Callable[[], Awaitable[None]]) -> None:
        """Repeat a step until cancelled, also after errors."""
        while True:
            try:
                await step()
            except Exception as error:  # noqa: BLE001 - most likely an outage of the database
                logger.warning("A periodic task of the worker failed; retrying: %r", error)
                await asyncio.sleep(_RETRY_AFTER_FAULT)

    async def _watch(self) -> None:
        """Poll for turns that other workers have claimed, and for turns that should stop."""
        poll = _STOP_POLL_POSTGRES if self._engine.wakes.reaches_others else _STOP_POLL_SQLITE
        every, last_check = self._engine.queue.dead_after, time.monotonic()
        with self._engine.wakes.subscribe(STOP) as subscription:
            while True:
                await subscription.wait(poll)
                if self._attempts or self._unaccounted or time.monotonic() - last_check > every:
                    await self._reconcile_claims()
                    last_check = time.monotonic()

    async def _reconcile_claims(self) -> None:
        """Reconcile the claims that the database records for this worker with its attempts."""
        # Copied before the query: the next round covers what is claimed or ends after it.
        attempts, unaccounted = list(self._attempts.values()), set(self._unaccounted)
        held_claims = await self._engine.queue.held_by(self.worker.id)
        for attempt in attempts:
            stop_flags = [
                held_claims[claim_id] for claim_id in attempt.claim_ids if claim_id in held_claims
            ]
            if not stop_flags:
                attempt.give_up()
            elif any(stop_flags):
                attempt.stop()
        await self._hand_back(held_claims)
        self._unaccounted -= unaccounted

    async def _hand_back(self, held_claims: Mapping[str, bool]) -> None:
        """Give back claims that this worker holds but does not run: no other worker can."""
        run = {claim for attempt in self._attempts.values() for claim in attempt.claim_ids}
        for claim in held_claims.keys() - run - self._claiming:
            # A locked session is left for the next round: the other claims do not wait for it.
            if await self._engine.queue.hand_back(self.worker.id, claim, wait=False):
                logger.warning(
                    "This worker held the claim %s without running it, and handed it back.", claim
                )
                self._engine.dispatch()

    async def _do_upkeep(self) -> None:
        """Delete workers that died without unregistering, old logs, and unused objects."""
        await Workers(self._store.database).prune(_SILENT_WORKERS_FOR)
        await self._log.trim(self.options.event_retention_seconds)
        await self._delete_unused_objects()
        # At random: workers that were started together would trim at the same moments.
        await asyncio.sleep(_UPKEEP_EVERY * random.uniform(0.5, 1.5))  # noqa: S311 - no secret

    async def _delete_unused_objects(self) -> None:
        """Delete objects that no row has; in an outage of the object store, at the next upkeep."""
        try:
            await ObjectCleanup(self._store.database).run()
        except ObjectStoreError as error:
            logger.warning("Unused objects stay until the next upkeep: %s", error)
