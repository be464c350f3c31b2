"""Polls the logs of all waiting readers of a process with one query.

A reader that waits for a wake-up would otherwise poll for itself: hundreds of open streams would
keep the database and the event loop busy while nothing happens.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextvars import Context
from typing import TYPE_CHECKING, NamedTuple

from lango.store.turns.log import TurnLog

if TYPE_CHECKING:
    from lango.turns.wake import LogSubscription

logger = logging.getLogger(__name__)


class _Waiting(NamedTuple):
    """What a reader waits for: events of a turn after a number."""

    turn_id: str
    after: int


class LogPoller:
    """Finds logs that have news for readers whose wake-up is missing."""

    def __init__(self, log: TurnLog, interval: Callable[[], float]) -> None:
        self._log = log
        self._interval = interval
        self._waiting: dict[LogSubscription, _Waiting] = {}
        self._task: asyncio.Task[None] | None = None

    async def wait(self, subscription: LogSubscription, turn_id: str, after: int) -> bool:
        """Wait for a wake-up; False if a poll found news instead."""
        self._waiting[subscription] = _Waiting(turn_id, after)
        if self._task is None or self._task.done():
            # A context of its own: it polls for all tenants.
            self._task = asyncio.create_task(self._poll_repeatedly(), context=Context())
        try:
            await subscription.wait()
            return not subscription.take_poll()
        finally:
            del self._waiting[subscription]

    async def _poll_repeatedly(self) -> None:
        """Poll until no reader waits."""
        while self._waiting:
            await asyncio.sleep(self._interval())
            try:
                await self._poll()
            except Exception as error:  # noqa: BLE001 - each reader gets its own error
                logger.info("The logs could not be polled: %s", type(error).__name__)
                for subscription in self._waiting:
                    subscription.poll()
        self._task = None

    async def _poll(self) -> None:
        waiting = dict(self._waiting)
        last_events = await self._log.last_events({reader.turn_id for reader in waiting.values()})
        for subscription, reader in waiting.items():
            last = last_events.get(reader.turn_id)
            is_news = last is None or last > reader.after  # None: deleted, or ended
            if is_news and self._waiting.get(subscription) == reader:
                subscription.poll()
