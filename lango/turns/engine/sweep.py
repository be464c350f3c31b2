"""A sweep finds turns that no dispatch has brought to a worker, and dispatches them again."""

from __future__ import annotations

import time
from typing import Final

from lango.store.turns.rows import Head
from lango.turns.engine.protocol import Engine, EngineWorker

READY_FOR: Final = 3.0
"""Seconds that a turn is seen as ready before a sweep dispatches it."""
AGAIN_AFTER: Final = 4.0
"""Seconds after which a sweep dispatches the same turn again."""
_AT_MOST: Final = 100
_REMEMBERED: Final = 60.0


class Sweep:
    """The sweeps of one worker.

    It leaves out what its worker has no room for: while all workers are full, turns wait in the
    engine, and dispatching them again would be in vain.
    """

    def __init__(self, engine: Engine, worker: EngineWorker) -> None:
        self._engine, self._worker = engine, worker
        self._first_seen: dict[str, float] = {}  # turns
        self._dispatched: dict[str, float] = {}  # turns, by sweeps

    async def look(self, *, all_ready: bool) -> None:
        """Dispatch scheduled turns that are due, turns of dead workers, and overdue ready turns.

        `all_ready` includes ready turns that have only just become so.
        """
        if due := await self._engine.queue.promote_due():
            self._engine.dispatch(due)
        worker = self._worker
        heads = await self._engine.queue.heads(worker.apps, _AT_MOST, worker.most_losses)
        now = time.monotonic()
        self._forget(now)
        found = [head for head in heads if worker.may_begin(head)]
        self._dispatch([head for head in found if all_ready or self._is_overdue(head, now)], now)

    def _is_overdue(self, head: Head, now: float) -> bool:
        return head.lost or now - self._first_seen.setdefault(head.turn, now) >= READY_FOR

    def _dispatch(self, heads: list[Head], now: float) -> None:
        chosen = [head for head in heads if head.turn not in self._dispatched]
        self._dispatched |= {head.turn: now for head in chosen}
        if chosen:
            self._engine.dispatch(chosen)

    def _forget(self, now: float) -> None:
        self._first_seen = _since(now - _REMEMBERED, self._first_seen)
        self._dispatched = _since(now - AGAIN_AFTER, self._dispatched)


def _since(start: float, times: dict[str, float]) -> dict[str, float]:
    return {turn: at for turn, at in times.items() if at >= start}
