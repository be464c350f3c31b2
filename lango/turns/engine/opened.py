"""What engines share: the wake-ups and the queue of one database."""

from __future__ import annotations

from typing import Final, Self

from lango.store.db.database import Database
from lango.store.turns.claim import DEAD_AFTER, TurnQueue
from lango.turns.bus.database import DatabaseBus
from lango.turns.bus.protocol import Bus
from lango.turns.wake import WakeUps

POLL_SQLITE: Final = 0.25
POLL_POSTGRES: Final = 1.0


class OpenedEngine:
    """The part of an engine that is the same for all: open it before use, close it after."""

    def __init__(
        self,
        database: Database,
        *,
        bus: Bus | None = None,
        dead_after: float = DEAD_AFTER,
        poll: float | None = None,
    ) -> None:
        self.wakes = WakeUps(bus or DatabaseBus(database))
        self.queue = TurnQueue(database, dead_after=dead_after)
        self.poll = poll or (POLL_POSTGRES if self.wakes.reaches_others else POLL_SQLITE)

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def open(self) -> None:
        """Start to receive wake-ups of other processes."""
        self.wakes.open()

    async def close(self) -> None:
        """Stop receiving wake-ups."""
        await self.wakes.close()
