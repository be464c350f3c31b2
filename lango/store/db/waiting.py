"""Bounded waits inside one process: for a connection, and for a session that others write to.

Tenants take turns at connections: one that requests hundreds delays only itself.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncGenerator, Container
from contextlib import asynccontextmanager
from typing import Final

from lango.core.current import current_tenant
from lango.errors import StoreBusyError
from lango.store.sessions.entries import SessionKey

PER_SESSION: Final = 2
"""Connections that the writers of one session use at a time: one works, the next is at the server.

More would wait there for the session's row, each with a connection that other sessions need.
"""
_WOKEN_AT_ONCE: Final = 4
"""Tasks that may take a `BriefLock` one after another before the event loop does anything else."""


class FairQueue:
    """Tasks that wait: tenants take turns, and those of a tenant are in order."""

    def __init__(self) -> None:
        # By tenant, the next one first. Cancelled tasks are left in it.
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()

    def __len__(self) -> int:
        """The number of tenants that may have a task here."""
        return len(self._waiting)

    def join(self) -> asyncio.Future[None]:
        """What this task has to await until it is woken."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(current_tenant.get(), deque()).append(waiter)
        return waiter

    def wake_next(self, skip: Container[str] = ()) -> str | None:
        """Wake the next task of a tenant not in `skip`; its tenant, or None if none waits."""
        while (tenant := self._next_tenant(skip)) is not None:
            tasks = self._waiting.pop(tenant)
            while tasks and tasks[0].done():  # cancelled: they cost their tenant no turn
                tasks.popleft()
            if tasks:
                tasks.popleft().set_result(None)
                if tasks:
                    self._waiting[tenant] = tasks  # after the others
                return tenant
        return None

    def _next_tenant(self, skip: Container[str]) -> str | None:
        return next((tenant for tenant in self._waiting if tenant not in skip), None)


class FairSemaphore:
    """A semaphore at which tenants take turns, and the tasks of a tenant wait in order."""

    def __init__(self, value: int) -> None:
        self.limit = value
        self._free = value
        self._queue = FairQueue()

    @property
    def used(self) -> int:
        """The number of slots that are taken."""
        return self.limit - self._free

    def locked(self) -> bool:
        """Whether a task would have to wait."""
        return not self._free

    async def acquire(self) -> None:
        """Wait for the turn of this tenant and this task, and take a slot."""
        if self._free:
            self._free -= 1
            return
        waiter = self._queue.join()
        try:
            await waiter
        except asyncio.CancelledError:
            if not waiter.cancelled():  # it was given to this task, which cannot use it
                self.release()
            raise

    def release(self) -> None:
        """Release a slot, to the next waiting task if there is one."""
        if self._queue.wake_next() is None:
            self._free += 1


class BriefLock:
    """A lock that most tasks release before any other task runs: they await nothing inside.

    A semaphore that hands each release to the next task would be held until that task runs, one
    pass of the event loop later; all that come meanwhile wait in line, and on a busy loop the line
    never ends. Here a release wakes several tasks, tenants by turns, and each takes the lock when
    it runs. One that finds it taken again is among the first of the next time.
    """

    def __init__(self) -> None:
        self._is_held = False
        self._queue = FairQueue()
        self._woken = 0
        self._too_late: deque[asyncio.Future[None]] = deque()  # woken, but the lock was taken
        self._first = 0  # tasks that were too late once, and go before all that come now

    def locked(self) -> bool:
        """Whether a task would have to wait."""
        return self._is_held or bool(self._first)

    async def acquire(self) -> None:
        """Take the lock, once it is free."""
        if self.locked():
            await self._woken_by(self._queue.join())
            if self._is_held:
                await self._be_first()
        self._is_held = True

    async def _be_first(self) -> None:
        self._first += 1
        try:
            while self._is_held:
                waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                self._too_late.append(waiter)
                await self._woken_by(waiter)
        finally:
            self._first -= 1

    async def _woken_by(self, waiter: asyncio.Future[None]) -> None:
        try:
            await waiter
        except asyncio.CancelledError:
            if not waiter.cancelled():  # it was woken, and another has to be
                self._woken -= 1
                self._wake()
            raise
        self._woken -= 1

    def release(self) -> None:
        """Release the lock, and wake tasks that wait for it."""
        self._is_held = False
        self._wake()

    def _wake(self) -> None:
        while not self._is_held and self._woken < _WOKEN_AT_ONCE and self._wake_next():
            self._woken += 1

    def _wake_next(self) -> bool:
        while self._too_late:
            waiter = self._too_late.popleft()
            if not waiter.done():  # cancelled
                waiter.set_result(None)
                return True
        return self._queue.wake_next() is not None


@asynccontextmanager
async def acquired(
    lock: FairSemaphore | BriefLock | asyncio.Semaphore, seconds: float
) -> AsyncGenerator[None]:
    """Hold a semaphore inside; StoreBusyError if it is not free in time."""
    if lock.locked():  # a timer only for those that wait
        try:
            async with asyncio.timeout(seconds):
                await lock.acquire()
        except TimeoutError as error:
            raise StoreBusyError from error
    else:
        await lock.acquire()
    try:
        yield
    finally:
        lock.release()


class _Writers:
    """The writers of one session, in order of arrival."""

    def __init__(self) -> None:
        self.count = 0
        self.slots = asyncio.Semaphore(PER_SESSION)


class SessionQueues:
    """In-memory queues of writers: those that wait for a locked session use few connections."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._sessions: dict[SessionKey, _Writers] = {}

    @asynccontextmanager
    async def turn_of(self, session: SessionKey) -> AsyncGenerator[None]:
        """Inside, write to the session; StoreBusyError if earlier writers take too long."""
        writers = self._sessions.setdefault(session, _Writers())
        writers.count += 1
        try:
            async with acquired(writers.slots, self._seconds):
                yield
        finally:
            writers.count -= 1
            if not writers.count:
                del self._sessions[session]
