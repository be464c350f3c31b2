"""A sweep finds turns that no dispatch has brought to a worker, and dispatches them again."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from lango.store.turns.rows import Head
from lango.turns.engine.protocol import Engine, EngineWorker

READY_FOR: Final = 3.0
"""Seconds that a turn is seen as ready before a sweep dispatches it."""
_MAX_HEADS: Final = 100
_MAX_READY: Final = 20
"""Ready turns that one sweep dispatches: most of them only wait for their turn in the engine."""
_REMEMBERED: Final = 60.0


class MissedTurnSweep:
    """The sweeps of one worker.

    It leaves out what its worker has no room for: while all workers are full, turns wait in the
    engine. `is_known` says of a turn whether the engine has it for certain.
    """

    def __init__(
        self, engine: Engine, worker: EngineWorker, is_known: Callable[[str], bool]
    ) -> None:
        self._engine, self._worker, self._is_known = engine, worker, is_known
        self._first_seen: dict[str, float] = {}  # turns

    async def look(self, *, all_ready: bool) -> None:
        """Dispatch scheduled turns that are due, turns of dead workers, and overdue ready turns.

        `all_ready` includes ready turns that have only just become so. Of the ready ones, those
        that wait longest come first: a turn whose dispatch was lost becomes one of them.
        """
        due = await self._engine.queue.promote_due()
        worker = self._worker
        heads = await self._engine.queue.heads(worker.apps, _MAX_HEADS, worker.most_losses)
        candidates = [head for head in heads if worker.may_begin(head)]
        lost = [head for head in candidates if head.lost]
        ready = [head for head in candidates if not head.lost and not self._is_known(head.turn)]
        ready = [head for head in ready if all_ready or self._is_overdue(head)]
        if missed := [*due, *lost, *ready[:_MAX_READY]]:
            self._engine.dispatch(missed)

    def _is_overdue(self, head: Head) -> bool:
        now = time.monotonic()
        if len(self._first_seen) > _MAX_HEADS:
            since = now - _REMEMBERED
            self._first_seen = {
                turn: seen_at for turn, seen_at in self._first_seen.items() if seen_at > since
            }
        return now - self._first_seen.setdefault(head.turn, now) >= READY_FOR
