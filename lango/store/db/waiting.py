"""Bounded waits inside one process: for a connection, and for a session that others write to.

Tenants take turns at connections: one that requests hundreds delays only itself.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final

from lango.core.tenants import current_tenant
from lango.errors import StoreBusyError
from lango.store.sessions.entries import SessionKey

PER_SESSION: Final = 2
"""Connections that the writers of one session use at a time: one works, the next is at the server.

More would wait there for the session's row, each with a connection that other sessions need.
"""


class FairSemaphore:
    """A semaphore at which tenants take turns, and the tasks of a tenant wait in order."""

    def __init__(self, value: int) -> None:
        self._free = value
        # By tenant, the next one first. Cancelled tasks are left in it.
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()

    def locked(self) -> bool:
        """Whether a task would have to wait."""
        return not self._free

    async def acquire(self) -> None:
        """Wait for the turn of this tenant and this task, and take a slot."""
        if self._free:
            self._free -= 1
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(current_tenant.get(), deque()).append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if not waiter.cancelled():  # it was given to this task, which cannot use it
                self.release()
            raise

    def release(self) -> None:
        """Release a slot, to the next waiting task if there is one."""
        next_waiter = self._next()
        if next_waiter is None:
            self._free += 1
        else:
            next_waiter.set_result(None)

    def _next(self) -> asyncio.Future[None] | None:
        while self._waiting:
            tenant, tasks = self._waiting.popitem(last=False)
            while tasks and tasks[0].done():  # cancelled: they cost their tenant no turn
                tasks.popleft()
            if tasks:
                first = tasks.popleft()
                if tasks:
                    self._waiting[tenant] = tasks  # after the others
                return first
        return None


@asynccontextmanager
async def acquired(lock: FairSemaphore | asyncio.Semaphore, seconds: float) -> AsyncGenerator[None]:
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
