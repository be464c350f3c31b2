"""A worker that is told to stop ends all that it has begun, whatever becomes of the telling."""

import asyncio
from contextlib import suppress

from faults.turn_place import Process
from lango.core.turn_states import MAX_ATTEMPTS
from lango.turns.engine import LocalEngine
from lango.turns.worker import TurnWorker


def _others() -> set[asyncio.Task[object]]:
    return asyncio.all_tasks() - {asyncio.current_task()}


async def _stops(worker: TurnWorker, running: set[asyncio.Task[object]]) -> None:
    await worker.stop(0)
    assert _others() <= running
    assert not worker.is_running


async def test_a_stop_that_was_cancelled_can_be_repeated(here: Process) -> None:
    running, worker = _others(), here.worker()
    await worker.start()
    turn = await here.say('call hold {"name": "never"}')
    await here.place.effects.wait(lambda said: "held never" in said)
    stopping = asyncio.create_task(worker.stop(3600.0))
    await asyncio.sleep(0)  # it waits by now, first for the look for work
    stopping.cancel()
    with suppress(asyncio.CancelledError):
        await stopping
    await _stops(worker, running)
    assert (await here.turns.get(turn)).ended is None  # it is left to others


async def test_a_look_for_work_that_broke_does_not_keep_the_rest_running(here: Process) -> None:
    running, worker = _others(), here.worker()

    class Breaking(LocalEngine):
        async def run(self, worker: object) -> None:
            del worker
            raise RuntimeError("no more looks")

    worker._engine = Breaking(here.store.database)  # pyright: ignore[reportPrivateUsage]
    await worker.start()
    await asyncio.sleep(0)
    await _stops(worker, running)


async def test_a_turn_survives_any_number_of_stops(here: Process) -> None:
    turn = await here.say('call hold {"name": "never"}')
    for attempt in range(1, MAX_ATTEMPTS + 2):
        worker = here.worker()
        await worker.start()
        async with asyncio.timeout(20):
            while (found := await here.turns.get(turn)).attempts < attempt:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        await worker.stop(0)
        assert (found.attempts, found.ended) == (attempt, None)
