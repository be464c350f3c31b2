"""A worker's heartbeat, in its own thread, so that a busy event loop does not count as dead.

The thread watches the loop. If the loop has not ticked for `hang_after` seconds, the heartbeat
pauses, and other workers take over the worker's turns.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
import traceback
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from lango.errors import DatabaseHeldError
from lango.store.db.database import Database
from lango.store.turns.workers import Worker, Workers

logger = logging.getLogger(__name__)

HANG_AFTER: Final = 30.0
BEATS_PER_DEATH: Final = 5
"""Heartbeats sent within the time after which a silent worker counts as dead."""
_TICKS_PER_HANG: Final = 10


class Contact:
    """Whether this worker may treat missing heartbeats of other workers as their death.

    Not while its own heartbeats fail, because the database is away or a read-only standby answers.
    After such an outage the other workers get `dead_after` seconds to send a heartbeat, and so
    keep the turns that they still hold in memory.
    """

    def __init__(self, dead_after: float) -> None:
        self._dead_after = dead_after
        self._gap = dead_after / 2  # the longest usual time between two heartbeats
        self._last_arrival = time.monotonic()
        self._doubted_at = float("-inf")

    def note(self) -> None:
        """Record that a heartbeat of this worker has arrived."""
        now = time.monotonic()
        # A database that is always slow must not suspend takeovers for ever.
        may_doubt = now - self._doubted_at > 2 * self._dead_after
        if may_doubt and now - self._last_arrival > self._gap:
            self._doubted_at = now
        self._last_arrival = now

    @property
    def age(self) -> float:
        """Seconds since a heartbeat of this worker last arrived."""
        return time.monotonic() - self._last_arrival

    @property
    def is_sure(self) -> bool:
        """Whether a missing heartbeat means that its worker is dead."""
        now = time.monotonic()
        has_arrived = now - self._last_arrival <= self._gap
        return has_arrived and now - self._doubted_at >= self._dead_after


class Heartbeat:
    """Sends one worker's heartbeats from `start` to `stop`, except while its event loop hangs."""

    def __init__(
        self, database: Database, worker: Worker, *, dead_after: float, hang_after: float
    ) -> None:
        self._database = database
        self._worker = worker
        self._interval = dead_after / BEATS_PER_DEATH
        self._dead_after = dead_after
        self._hang_after = hang_after
        self.contact = Contact(dead_after)
        self._last_tick = time.monotonic()
        self._hang_logged = False
        self._hold_logged = False
        self._stopping = threading.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._thread: threading.Thread | None = None
        self._loop_thread = 0

    async def start(self) -> None:
        """Register the worker and start its heartbeat."""
        self._stopping.clear()
        self._loop_thread = threading.get_ident()
        self._last_tick = time.monotonic()
        await Workers(self._database).register(self._worker)
        self.contact = Contact(self._dead_after)
        self._tasks = [asyncio.create_task(self._tick())]
        if self._database.is_in_memory:  # no other process could take anything over
            self._tasks.append(asyncio.create_task(self._beat_in_loop()))
        else:
            name = f"heartbeat of {self._worker.id}"
            self._thread = threading.Thread(target=self._run, name=name, daemon=True)
            self._thread.start()

    async def stop(self, handing_over: Sequence[str] = ()) -> None:
        """Stop the heartbeat and unregister the worker; others can claim `handing_over` at once."""
        self.silence()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join, self._dead_after)
        await Workers(self._database).remove(self._worker.id, handing_over)

    def silence(self) -> None:
        """Stop the heartbeat; the worker stays registered, and soon counts as dead."""
        self._stopping.set()
        for task in self._tasks:
            task.cancel()

    async def _tick(self) -> None:
        while True:
            self._last_tick = time.monotonic()
            await asyncio.sleep(self._hang_after / _TICKS_PER_HANG)

    def _run(self) -> None:
        database = self._database.twin()
        with asyncio.Runner() as runner:
            while not self._stopping.wait(self._interval):
                if not self._is_hung():
                    with suppress(asyncio.CancelledError):  # of a driver: nothing cancels this loop
                        runner.run(self._beat(database))
            runner.run(database.close())

    async def _beat_in_loop(self) -> None:
        while True:
            await asyncio.sleep(self._interval)
            await self._beat(self._database)

    async def _beat(self, database: Database) -> None:
        workers = Workers(database)
        try:
            async with asyncio.timeout(self._dead_after):
                if database is not self._database:
                    await database.open()  # closed if the last heartbeat failed
                if not await workers.beat(self._worker.id) and not self._stopping.is_set():
                    await workers.register(self._worker)
            self.contact.note()
            self._hold_logged = False
        except DatabaseHeldError as error:  # it was held after this worker had started
            if not self._hold_logged:
                logger.warning("%s", error)
            self._hold_logged = True
        except Exception as error:  # noqa: BLE001 - the next heartbeat retries
            logger.warning("A heartbeat did not reach the database: %s", type(error).__name__)
            if database is not self._database:
                with suppress(Exception):
                    await database.close()

    def _is_hung(self) -> bool:
        seconds = time.monotonic() - self._last_tick
        if seconds < self._hang_after:
            self._hang_logged = False
            return False
        if not self._hang_logged:
            self._hang_logged = True
            logger.error(
                "The event loop has been blocked for %.1f s. Other workers take over its turns. "
                "It is blocked here:\n%s",
                seconds,
                self._stack(),
            )
        return True

    def _stack(self) -> str:
        frames = sys._current_frames()  # pyright: ignore[reportPrivateUsage]  # the documented way
        frame = frames.get(self._loop_thread)
        return "".join(traceback.format_stack(frame)) if frame else "(unknown)"
