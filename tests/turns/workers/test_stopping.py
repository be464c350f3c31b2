"""A stopping worker hands over all its turns, even if a call of `stop` is cancelled."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import Any

import pytest
import sqlalchemy as sa

from faults.turns.workspace import TurnProcess
from lango.core.turns.events import Completed, Publish, TurnEvent
from lango.core.turns.states import MAX_ATTEMPTS, MIN_ALONE
from lango.store.schema.tables import turns
from lango.store.turns.claim import TurnQueue
from lango.store.turns.rows import Claim, Head
from lango.store.turns.workers import Workers
from lango.turns.engine.database import LocalEngine
from lango.turns.worker import TurnWorker
from tests.store.rows import beside, execute


def _others() -> set[asyncio.Task[object]]:
    return asyncio.all_tasks() - {asyncio.current_task()}


async def _stops(worker: TurnWorker, running: set[asyncio.Task[object]]) -> None:
    await worker.stop(0)
    assert _others() <= running
    assert not worker.is_running


async def test_a_stop_that_was_cancelled_can_be_repeated(process: TurnProcess) -> None:
    running, worker = _others(), process.worker()
    await worker.start()
    turn = await process.say('call hold {"name": "never"}')
    await process.workspace.effects.wait(lambda effects: "held never" in effects)
    stopping = asyncio.create_task(worker.stop(3600.0))
    await asyncio.sleep(0)  # it waits by now, first for the look for work
    stopping.cancel()
    with suppress(asyncio.CancelledError):
        await stopping
    await _stops(worker, running)
    assert (await process.turns.get(turn)).ended is None  # it is left to others


async def test_a_look_for_work_that_broke_does_not_keep_the_rest_running(
    process: TurnProcess,
) -> None:
    running, worker = _others(), process.worker()

    class Breaking(LocalEngine):
        async def run(self, worker: object) -> None:
            del worker
            raise RuntimeError("no more looks")

    worker._engine = Breaking(process.store.database)  # pyright: ignore[reportPrivateUsage]
    await worker.start()
    await asyncio.sleep(0)
    await _stops(worker, running)


async def test_a_poll_that_ends_when_the_worker_stops_begins_nothing(
    process: TurnProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, found, stops = TurnQueue.heads, asyncio.Event(), asyncio.Event()

    async def heads(queue: TurnQueue, *given: Any) -> list[Head]:
        waiting = await real(queue, *given)
        found.set()
        await stops.wait()
        return waiting

    monkeypatch.setattr(TurnQueue, "heads", heads)
    turn, worker = await process.say("hi"), process.worker()
    await worker.start()
    await found.wait()
    stopping = asyncio.create_task(worker.stop())
    await asyncio.sleep(0)  # it claims no more
    stops.set()
    await stopping
    assert (await process.turns.get(turn)).state == "queued"
    await process.turns.cancel(turn)  # other tests count what is left in their database


async def _begun(worker: TurnWorker) -> None:
    """The worker has a turn in hand."""
    await worker.start()
    async with asyncio.timeout(20):
        while not worker.running:  # noqa: ASYNC110 - no event to await
            await asyncio.sleep(0.01)


async def _handed_over(process: TurnProcess, turn: str) -> int:
    async with beside(process.workspace.url) as connection:
        found = sa.select(turns.c.handed_over).where(turns.c.id == turn)
        return await connection.scalar(found) or 0


async def test_a_turn_survives_any_number_of_stops(process: TurnProcess) -> None:
    turn = await process.say('call hold {"name": "never"}')
    for attempt in range(1, MAX_ATTEMPTS + 2):
        worker = process.worker()
        await _begun(worker)
        await worker.stop(0)
        found = await process.turns.get(turn)
        assert (found.attempts, found.state) == (attempt, "running")
        assert await _handed_over(process, turn) == attempt


async def test_a_stop_that_was_cut_off_hands_over_when_it_is_repeated(
    process: TurnProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    turn, worker = await process.say('call hold {"name": "never"}'), process.worker()
    await _begun(worker)

    async def cut_off(_workers: Workers, _id: str, _claims: object) -> None:
        raise asyncio.CancelledError

    with monkeypatch.context() as broken:
        broken.setattr(Workers, "remove", cut_off)
        with pytest.raises(asyncio.CancelledError):
            await worker.stop(0)
    assert await _handed_over(process, turn) == 0
    await worker.stop(0)
    assert await _handed_over(process, turn) == 1


class Stuck:
    """An app that never ends, whether it is to run a turn or to close it."""

    fingerprint = "stuck"
    remembers = False
    embedder = None

    async def run(
        self, claim: Claim, *, abort: asyncio.Event, publish: Publish
    ) -> AsyncGenerator[TurnEvent]:
        del claim, abort, publish
        await asyncio.Event().wait()
        yield Completed()


async def test_who_only_closes_a_turn_makes_no_attempt(process: TurnProcess) -> None:
    turn = await process.say("hi")
    first = TurnWorker(process.store, process.engine, {process.workspace.app: Stuck()})
    await _begun(first)
    await first.stop(0)
    worn_out = f"attempts = {MAX_ATTEMPTS}, lost_alone = {MIN_ALONE}, handed_over = 0"
    await execute(process.workspace.url, f"update turns set {worn_out} where id = '{turn}'")  # noqa: S608
    for _ in range(2):  # the verdict stays
        closing = TurnWorker(process.store, process.engine, {process.workspace.app: Stuck()})
        await _begun(closing)
        await closing.stop(0)
        assert await _handed_over(process, turn) == 0
