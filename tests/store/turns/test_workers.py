"""Workers come, beat, fall silent and go."""

import asyncio

from lango.store.turns.workers import Worker
from tests.store.turns.worker_context import DEAD_AFTER, opened


async def test_who_lives_is_who_beats(store_url: str) -> None:
    async with opened(store_url) as desk:
        one, two = await desk.worker("a", "b"), await desk.worker()

        async def living() -> list[str]:
            found = await desk.workers.living(DEAD_AFTER)
            return [each.id for each in found if each.id in (one.id, two.id)]

        assert await living() == [one.id, two.id]
        await desk.freeze(one)
        assert await living() == [two.id]
        assert await desk.workers.beat(one.id)
        assert await living() == [one.id, two.id]
        await desk.workers.remove(one.id)
        assert await living() == [two.id]
        assert not await desk.workers.beat(one.id)


async def test_a_worker_is_entered_as_it_is(store_url: str) -> None:
    async with opened(store_url) as desk:
        worker = await desk.worker("a")
        changed = Worker(worker.id, {"b": "print-2"}, "elsewhere", 7)
        await desk.workers.register(changed)
        found = {each.id: each for each in await desk.workers.living(DEAD_AFTER)}
        assert found[worker.id] == changed


async def test_a_worker_registers_several_times_at_once(store_url: str, tenant: str) -> None:
    async with opened(store_url) as desk:
        worker = Worker(f"wrk_{tenant}", {"app": "print"})
        await asyncio.gather(*(desk.workers.register(worker) for _ in range(8)))
        assert [one.id for one in await desk.workers.living(60.0)].count(worker.id) == 1


async def test_the_long_silent_are_struck_out(store_url: str) -> None:
    async with opened(store_url) as desk:
        silent, living = await desk.worker(), await desk.worker()
        await desk.freeze(silent)
        assert await desk.workers.prune(DEAD_AFTER) >= 1
        assert not await desk.workers.beat(silent.id)
        assert await desk.workers.beat(living.id)
