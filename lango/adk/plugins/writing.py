"""Writing behind a turn's back."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextvars import Context
from typing import Final, Generic, TypeVar

T = TypeVar("T")
logger = logging.getLogger(__name__)

ROOM: Final = 1_000
"""Things that may wait to be written; more are lost rather than kept in memory."""
BATCH: Final = 100


class Writer(Generic[T]):
    """Writes what it is given soon, in order and without anybody waiting for it.

    What cannot be written is lost, and said so once until writing works again. It has a task only
    while there is something to write, and belongs to one event loop.
    """

    def __init__(self, write: Callable[[Sequence[T]], Awaitable[None]], what: str) -> None:
        self._write = write
        self._what = what
        self._waiting: deque[T] = deque()
        self._task: asyncio.Task[None] | None = None
        self._lost = 0
        self._late = False

    def put(self, thing: T) -> None:
        """Have a thing written."""
        if len(self._waiting) >= ROOM:
            self._lose(1, None)
            return
        self._waiting.append(thing)
        if self._task is None or self._task.done():
            # A context of its own: the work is no part of the turn's trace, nor keeps it alive.
            self._task = asyncio.get_running_loop().create_task(self._work(), context=Context())

    async def flush(self, seconds: float) -> None:
        """Wait until all is written, so long at most; not at all while writing does not work."""
        if self._task is None or self._lost or self._late:
            return
        _, unfinished = await asyncio.wait({self._task}, timeout=seconds)
        self._late = bool(unfinished)

    async def close(self, seconds: float) -> None:
        """Write what can be written in that time, and end."""
        if self._task is None:
            return
        _, unfinished = await asyncio.wait({self._task}, timeout=seconds)
        for task in unfinished:
            task.cancel()
            await asyncio.wait({task})
            logger.error("Ended with %s unwritten.", self._what)

    async def _work(self) -> None:
        while self._waiting:
            batch = [self._waiting.popleft() for _ in range(min(BATCH, len(self._waiting)))]
            try:
                await self._write(batch)
            except Exception as error:  # noqa: BLE001 - whatever it is, no turn may fail of it
                self._lose(len(batch), error)
            else:
                self._recover()

    def _lose(self, number: int, error: Exception | None) -> None:
        if self._lost == 0:
            logger.error(
                "%s cannot be written and are lost; the turns go on.", self._what, exc_info=error
            )
        self._lost += number

    def _recover(self) -> None:
        self._late = False
        if self._lost:
            logger.warning("%s are written again; %d were lost.", self._what, self._lost)
            self._lost = 0
