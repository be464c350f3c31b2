"""The tenant that the running task works for, and a semaphore that tenants share fairly."""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from contextvars import ContextVar
from typing import Final

current_tenant: Final = ContextVar("current_tenant", default="")
"""Empty for work that a process does for all tenants."""


class FairSemaphore:
    """A semaphore at which tenants take turns, and the tasks of a tenant wait in order.

    So a tenant with hundreds of waiting tasks delays only itself.
    """

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
            first = tasks.popleft()
            if tasks:
                self._waiting[tenant] = tasks  # after the others
            if not first.done():
                return first
        return None
