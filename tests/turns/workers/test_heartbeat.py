"""A worker's heartbeat goes on after whatever a driver raises."""

import asyncio

import pytest

from faults.turns.agents import PATIENCE
from faults.turns.workspace import TurnProcess
from lango.store.turns.workers import Workers


@pytest.mark.parametrize("error", [asyncio.CancelledError, OSError])
async def test_a_failed_beat_is_followed_by_others(
    error: type[BaseException], process: TurnProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    beats: list[str] = []
    beat = Workers.beat

    async def fail_first(self: Workers, worker: str) -> bool:
        beats.append(worker)
        if len(beats) == 1:
            raise error
        return await beat(self, worker)

    monkeypatch.setattr(Workers, "beat", fail_first)
    worker = process.worker()
    await worker.start()
    try:
        async with asyncio.timeout(PATIENCE):
            while len(beats) < 3:  # noqa: ASYNC110 - of a thread
                await asyncio.sleep(0.01)
    finally:
        await worker.stop(1.0)
