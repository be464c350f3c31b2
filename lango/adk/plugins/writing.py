"""Writes in the background of turns."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextvars import Context
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from lango.errors import StoreUnavailableError

T = TypeVar("T")
logger = logging.getLogger(__name__)

ROOM: Final = 1_000
"""Items that may wait to be written; further ones are lost, to limit memory."""
BATCH: Final = 100
AGAIN: Final = 1.0
"""Seconds between retries while the database does not answer."""


@dataclass(frozen=True, slots=True, eq=False)
class _Flush:
    """A caller of `flush`, which waits until `queued` items are written or lost."""

    queued: int
    written: asyncio.Future[None]
    outlasts: bool


class Writer(Generic[T]):
    """Writes items soon and in order; `flush` waits for them.

    While the database does not answer, items wait. Items that cannot be written are lost; the log
    says so once until writing works again. A writer has a task only while items are pending, and
    belongs to one event loop.
    """

    def __init__(self, write: Callable[[Sequence[T]], Awaitable[None]], subject: str) -> None:
        self._write = write
        self._subject = subject
        self._waiting: deque[T] = deque()
        self._task: asyncio.Task[None] | None = None
        self._lost = 0
        self._late = False
        self._queued = 0  # items ever queued; `_settled` of them are written or lost
        self._settled = 0
        self._flushes: list[_Flush] = []

    def put(self, thing: T) -> None:
        """Queue an item for writing."""
        if len(self._waiting) >= ROOM:
            self._lose(1, None)
            return
        self._waiting.append(thing)
        self._queued += 1
        if self._task is None or self._task.done():
            # A context of its own: writing is not in the turn's trace and does not keep it alive.
            self._task = asyncio.get_running_loop().create_task(self._work(), context=Context())

    async def flush(self, seconds: float, *, outlasts: bool = False) -> None:
        """Wait until all queued items are written; return immediately while writing fails.

        With `outlasts`, wait also while the database does not answer. Items queued later are not
        waited for: other turns use the same writer.
        """
        if self._settled >= self._queued or self._lost or (self._late and not outlasts):
            return
        written: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._flushes.append(_Flush(self._queued, written, outlasts))
        _, unfinished = await asyncio.wait({written}, timeout=seconds)
        self._late = self._late or bool(unfinished)

    async def close(self, seconds: float) -> None:
        """Write what is possible in that time, then stop."""
        if self._task is None:
            return
        _, unfinished = await asyncio.wait({self._task}, timeout=seconds)
        for task in unfinished:
            task.cancel()
            await asyncio.wait({task})
            logger.error("Ended with %s unwritten.", self._subject)

    async def _work(self) -> None:
        while self._waiting:
            batch = [self._waiting.popleft() for _ in range(min(BATCH, len(self._waiting)))]
            try:
                await self._write(batch)
            except StoreUnavailableError as error:
                self._wait(batch, error)
                self._release()
                await asyncio.sleep(AGAIN)
                continue
            except Exception as error:  # noqa: BLE001 - no write may fail a turn
                self._lose(len(batch), error)
            else:
                self._recover()
            self._settled += len(batch)
            self._wake()

    def _wait(self, batch: Sequence[T], error: StoreUnavailableError) -> None:
        """Requeue a batch until the database answers."""
        if not self._late:
            logger.warning("%s wait for the database: %s", self._subject, error)
        self._waiting.extendleft(reversed(batch))
        self._late = True

    def _wake(self) -> None:
        """End the waits whose items are settled; a wait may already have timed out."""
        self._end([waiting for waiting in self._flushes if waiting.queued <= self._settled])

    def _release(self) -> None:
        """End the waits that do not outlast an outage."""
        self._end([waiting for waiting in self._flushes if not waiting.outlasts])

    def _end(self, flushes: Sequence[_Flush]) -> None:
        for flush in flushes:
            self._flushes.remove(flush)
            if not flush.written.done():
                flush.written.set_result(None)

    def _lose(self, number: int, error: Exception | None) -> None:
        if self._lost == 0:
            logger.error(
                "%s cannot be written and are lost; the turns continue.",
                self._subject,
                exc_info=error,
            )
        self._lost += number

    def _recover(self) -> None:
        self._late = False
        if self._lost:
            logger.warning("%s are written again; %d were lost.", self._subject, self._lost)
            self._lost = 0
