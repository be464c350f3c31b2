"""The engine on Temporal: one Standalone Activity for each turn, no workflows.

The database stays authoritative: Temporal brings a session to a worker, which claims it. A worker
is dead when the database says so; Temporal's retry brings its turn to another one.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Final

from temporalio.client import Client
from temporalio.worker import Worker

from lango.core.failpoints import failpoint
from lango.store.db.database import Database
from lango.store.turns.claim import DEAD_AFTER
from lango.store.turns.rows import Head
from lango.store.turns.submit import SqlTurnStore
from lango.turns.bus.choose import namespace_of
from lango.turns.bus.protocol import Bus
from lango.turns.engine.cancel import cancel_turn
from lango.turns.engine.opened import OpenedEngine
from lango.turns.engine.protocol import EngineWorker
from lango.turns.engine.sweep import MissedTurnSweep
from lango.turns.engine.temporal_activity import HEARTBEAT_EVERY, TurnActivity
from lango.turns.engine.temporal_client import (
    ActivityStarter,
    TemporalConnection,
    address_of,
)
from lango.turns.wake import WORK

logger = logging.getLogger(__name__)

_SWEEP_EVERY: Final = (1.5, 2.5)
_RETRY_AFTER_FAULT: Final = 2.0
_END_WITHIN: Final = 3.0
_BUILD_ID: Final = "lango"  # else the SDK hashes all modules, which takes seconds
_NEVER: Final = timedelta(days=365)


class TemporalEngine(OpenedEngine):
    """Dispatches turns through Temporal; sweeps find what it does not bring."""

    def __init__(
        self,
        database: Database,
        url: str,
        *,
        bus: Bus | None = None,
        dead_after: float = DEAD_AFTER,
    ) -> None:
        super().__init__(database, bus=bus, dead_after=dead_after)
        self.connection = TemporalConnection(address_of(url))
        self._turns = SqlTurnStore(database)
        self._starter = ActivityStarter(self.connection, namespace_of(database), self._cancelled)

    async def open(self) -> None:
        """Start to receive wake-ups, and to connect to Temporal."""
        await super().open()
        self.connection.open()

    async def close(self) -> None:
        """Send the last dispatches, then stop receiving wake-ups."""
        await self._starter.close()
        await self.connection.close()
        await super().close()

    def dispatch(self, heads: Sequence[Head] = ()) -> None:
        """Start the activities of turns; without heads, wake the workers, which look for them."""
        failpoint("engine.dispatch")
        for head in heads:
            self._starter.start(head)
        if not heads:
            self.wakes.notify(WORK)

    def withdraw(self, turn_id: str) -> None:
        """Cancel the activity of a turn."""
        self._starter.cancel(turn_id)

    async def _cancelled(self, head: Head) -> None:
        """Cancel a turn whose activity was cancelled in Temporal."""
        await cancel_turn(self._turns, self, head.tenant, head.turn)

    async def run(self, worker: EngineWorker) -> None:
        """Give a worker sessions with work until it takes no more; retry whatever fails."""
        slots = await worker.room()
        if not slots:
            return
        turns = TurnActivity(self, worker, slots)
        queues = [
            _TaskQueue(self.connection, self._starter.queue_of(app), turns, slots)
            for app in worker.apps
        ]
        try:
            await self._sweep(worker)
            await asyncio.gather(*(queue.stop() for queue in queues))
        finally:
            turns.leave()
            await asyncio.gather(*(queue.end() for queue in queues))

    async def _sweep(self, worker: EngineWorker) -> None:
        """Sweep until the worker takes no more."""
        sweep, is_woken = MissedTurnSweep(self, worker, self._starter.is_known), True
        with self.wakes.subscribe(WORK) as subscription:
            while await worker.room():
                try:
                    await sweep.look(all_ready=is_woken)
                except Exception:
                    logger.exception("Polling for turns failed; retrying.")
                is_woken = await subscription.wait(random.uniform(*_SWEEP_EVERY))  # noqa: S311 - jitter


class _TaskQueue:
    """A task queue from which a worker polls activities; polls anew after faults."""

    def __init__(
        self, connection: TemporalConnection, name: str, turns: TurnActivity, slots: int
    ) -> None:
        self._connection, self._name = connection, name
        self._turns, self._slots = turns, slots
        self._workers: dict[asyncio.Task[None], Worker] = {}  # by what runs them
        self._polling = asyncio.create_task(self._poll_repeatedly())

    async def stop(self) -> None:
        """Stop polling, and wait for the activities that run."""
        self._polling.cancel()
        await asyncio.gather(self._polling, return_exceptions=True)
        shutdowns = [worker.shutdown() for worker in self._workers.values()]
        await asyncio.gather(*shutdowns, *self._workers, return_exceptions=True)

    async def end(self) -> None:
        """Stop, and do not wait long for activities."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_END_WITHIN):
                await self.stop()
        for running in self._workers:
            running.cancel()

    async def _poll_repeatedly(self) -> None:
        while True:
            try:
                await self._poll()
            except Exception as error:  # noqa: BLE001 - retry after any fault
                logger.warning("Polling Temporal's queue %s failed: %r", self._name, error)
            await asyncio.sleep(_RETRY_AFTER_FAULT)

    async def _poll(self) -> None:
        """Poll until that fails: a worker that cannot poll runs on until its activities end."""
        failed = asyncio.Event()

        async def on_fatal_error(_: BaseException) -> None:
            failed.set()

        worker = self._new_worker(await self._connection.client(), on_fatal_error)
        running = asyncio.create_task(worker.run())
        self._workers[running] = worker
        running.add_done_callback(lambda _: failed.set())
        running.add_done_callback(self._ended)
        await failed.wait()

    def _ended(self, running: asyncio.Task[None]) -> None:
        del self._workers[running]
        if not running.cancelled() and (error := running.exception()) is not None:
            logger.warning("A worker on Temporal's queue %s failed: %r", self._name, error)

    def _new_worker(
        self, client: Client, on_fatal_error: Callable[[BaseException], Awaitable[None]]
    ) -> Worker:
        return Worker(
            client,
            task_queue=self._name,
            activities=[self._turns.run],
            max_concurrent_activities=self._slots,
            max_heartbeat_throttle_interval=timedelta(seconds=HEARTBEAT_EVERY),
            # Activities end with their attempts, for which the worker's drain has a limit.
            graceful_shutdown_timeout=_NEVER,
            build_id=_BUILD_ID,
            on_fatal_error=on_fatal_error,
        )
