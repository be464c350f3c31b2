"""Limits concurrent sync tools, shared between tenants so that none can take every thread."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from typing import Final
from weakref import WeakKeyDictionary

from lango.core.current import current_tenant

MAX_THREADS: Final = 64
"""Concurrent sync functions per event loop; others wait."""


class ThreadSlots:
    """The thread slots of one event loop.

    A tenant may take a slot while it holds fewer than are free. A single tenant gets half of the
    slots; if its functions hang, the next tenant gets a quarter, the one after that an eighth.
    """

    def __init__(self, limit: int) -> None:
        self._free = limit
        self._in_use: Counter[str] = Counter()
        self._waiting: deque[tuple[str, asyncio.Future[None]]] = deque()

    async def acquire(self) -> str:
        """Wait for a slot and take it; returns the tenant, for `release`."""
        tenant = current_tenant.get()
        if self._may_take(tenant) and all(queued != tenant for queued, _ in self._waiting):
            self._take(tenant)
            return tenant
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((tenant, granted))
        try:
            await granted
        except asyncio.CancelledError:
            if granted.done() and not granted.cancelled():
                self.release(tenant)
            else:
                self._waiting.remove((tenant, granted))
            raise
        return tenant

    def release(self, tenant: str) -> None:
        """Release a slot, and grant free slots to the waiters that may take one."""
        self._free += 1
        self._in_use[tenant] -= 1
        if not self._in_use[tenant]:
            del self._in_use[tenant]
        for _ in range(len(self._waiting)):
            waits, granted = self._waiting.popleft()
            if self._may_take(waits):
                self._take(waits)
                granted.set_result(None)
            else:
                self._waiting.append((waits, granted))

    def _may_take(self, tenant: str) -> bool:
        return self._in_use[tenant] < self._free

    def _take(self, tenant: str) -> None:
        self._free -= 1
        self._in_use[tenant] += 1


_slots: WeakKeyDictionary[asyncio.AbstractEventLoop, ThreadSlots] = WeakKeyDictionary()


def thread_slots() -> ThreadSlots:
    """The slots of the running event loop."""
    return _slots.setdefault(asyncio.get_running_loop(), ThreadSlots(MAX_THREADS))
