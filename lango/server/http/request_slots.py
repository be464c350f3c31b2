"""Limits how many requests the event loop works on at a time; tenants take turns at the slots.

All requests share one event loop: between any two of its steps, a request waits for the steps of
all others. So where several tenants use a server, each has one slot, and more only while the loop
keeps up. A tenant that floods the server waits for its own requests; another tenant finds a free
slot, and few steps before its own.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Container
from typing import Final, Self

from starlette.requests import Request

from lango.core.current import current_tenant
from lango.store.db.waiting import FairQueue

SLOTS: Final = 6
"""Requests at a time: enough to keep the loop busy while most of them wait for the database."""
SLOT_SECONDS: Final = 0.2
"""How long a request keeps its slot. One that takes longer waits for something, such as a locked
row, and uses little of the loop."""
MEASURE_EVERY: Final = 0.002
"""Seconds between two measurements of the loop, while requests wait for slots."""
LATE: Final = 0.002
"""A loop whose timers are later than this many seconds does not keep up."""
SHARED: Final = 10.0
"""Seconds for which a server is shared after two tenants have taken slots one after the other."""


class RequestSlots:
    """The slots of one server process."""

    def __init__(self, slots: int = SLOTS, seconds: float = SLOT_SECONDS) -> None:
        self._free = slots
        self._seconds = seconds
        self._held: Counter[str] = Counter()  # by tenant; only tenants that hold one
        self._queue = FairQueue()
        self._keeps_up = True  # the loop, when it was last measured; used up by one slot
        self._latest = ""  # tenant that asked for a slot
        self._shared_until = 0.0
        self._measuring: asyncio.TimerHandle | None = None

    def slot(self) -> RequestSlot:
        """A slot for a request of the current tenant, held inside `async with`."""
        return RequestSlot(self, self._seconds)

    async def take(self) -> str:
        """Wait for a slot of the current tenant; the tenant."""
        tenant = current_tenant.get()
        self._note(tenant)
        if self._free and self._may_have(tenant):
            self._give(tenant)
            return tenant
        waiter = self._queue.join()
        self._measure()
        try:
            await waiter
        except asyncio.CancelledError:
            if not waiter.cancelled():  # it was given to this request, which cannot use it
                self.release(tenant)
            raise
        return tenant

    def release(self, tenant: str) -> None:
        """Release a slot of a tenant; the next goes to a tenant that has none."""
        self._free += 1
        self._held -= Counter((tenant,))
        self._wake_next(self._held if self._is_shared else ())

    @property
    def _is_shared(self) -> bool:
        return time.monotonic() < self._shared_until

    def _note(self, tenant: str) -> None:
        if tenant != self._latest:
            if self._latest:
                self._shared_until = time.monotonic() + SHARED
            self._latest = tenant

    def _may_have(self, tenant: str) -> bool:
        if tenant not in self._held or not self._is_shared:
            return True
        return self._keeps_up and self._free > 1  # the last one is for another tenant

    def _wake_next(self, skip: Container[str] = ()) -> None:
        if self._free:
            tenant = self._queue.wake_next(skip)
            if tenant is not None:
                self._give(tenant)

    def _give(self, tenant: str) -> None:
        if tenant in self._held:
            self._keeps_up = False
            self._measure()
        self._free -= 1
        self._held[tenant] += 1

    def _measure(self) -> None:
        """Find out whether the loop keeps up."""
        if self._measuring is None:
            due = time.monotonic() + MEASURE_EVERY
            loop = asyncio.get_running_loop()
            self._measuring = loop.call_later(MEASURE_EVERY, self._measured, due)

    def _measured(self, due: float) -> None:
        self._measuring = None
        self._keeps_up = time.monotonic() - due <= LATE
        if self._keeps_up and (self._free > 1 or not self._is_shared):
            self._wake_next()
        if self._queue or not self._keeps_up:
            self._measure()


class RequestSlot:
    """A slot that is released at the end of its block, or earlier after some seconds."""

    def __init__(self, slots: RequestSlots, seconds: float) -> None:
        self._slots = slots
        self._seconds = seconds
        self._tenant = ""
        self._timer: asyncio.TimerHandle | None = None

    async def __aenter__(self) -> Self:
        self._tenant = await self._slots.take()
        self._timer = asyncio.get_running_loop().call_later(self._seconds, self.release)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.release()

    def release(self) -> None:
        """Let other requests run; a no-op if it is released already."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._slots.release(self._tenant)


def release_slot(request: Request) -> None:
    """Release the slot of a request that will wait long: for its turn, or for its body."""
    slot: RequestSlot = request.state.slot
    slot.release()
