"""Limits how many requests the event loop works on at a time; tenants take turns at the slots.

All requests share one event loop: between any two of its steps, a request waits for the steps of
all others. With few slots, a tenant that floods the server waits for slots, and the next free slot
goes to another tenant.
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Final, Self

from starlette.requests import Request

from lango.store.db.waiting import FairSemaphore

SLOTS: Final = 6
"""Requests at a time: enough to keep the loop busy while most of them wait for the database."""
SLOT_SECONDS: Final = 0.2
"""How long a request keeps its slot. One that takes longer waits for something, such as a locked
row, and uses little of the loop."""


class RequestSlots:
    """The slots of one server process."""

    def __init__(self, slots: int = SLOTS, seconds: float = SLOT_SECONDS) -> None:
        self._slots = FairSemaphore(slots)
        self._seconds = seconds

    def slot(self) -> RequestSlot:
        """A slot for a request of the current tenant, held inside `async with`."""
        return RequestSlot(self._slots, self._seconds)


class RequestSlot:
    """A slot that is released at the end of its block, or earlier after some seconds."""

    def __init__(self, slots: FairSemaphore, seconds: float) -> None:
        self._slots = slots
        self._seconds = seconds
        self._timer: asyncio.TimerHandle | None = None

    async def __aenter__(self) -> Self:
        await self._slots.acquire()
        self._timer = asyncio.get_running_loop().call_later(self._seconds, self.release)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.release()

    def release(self) -> None:
        """Let other requests run; a no-op if it is released already."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._slots.release()


def release_slot(request: Request) -> None:
    """Release the slot of a request that will wait long: for its turn, or for its body."""
    slot: RequestSlot = request.state.slot
    slot.release()
