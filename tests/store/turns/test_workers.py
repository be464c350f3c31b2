"""Workers come, beat, fall silent and go."""

import asyncio

from lango.store.turns.workers import Worker
from tests.store.turns.turn_stores import DEAD_AFTER, opened


async def test_who_lives_is_who_beats(store_url: str) -> None:
    async with opened(store_url) as stores:
        one, two = await stores.worker("a", "b"), await stores.worker()

        async def living() -> list[str]:
            found = await stores.workers.living(DEAD_AFTER)
            return [each.id for each in found if each.id in (one.id, two.id)]

        assert await living() == [one.id, two.id]
        await stores.freeze(one)
        assert await living() == [two.id]
        assert await stores.workers.beat(one.id)
        assert await living() == [one.id, two.id]
        await stores.workers.remove(one.id)
        assert await living() == [two.id]
        assert not await stores.workers.beat(one.id)


async def test_a_worker_is_entered_as_it_is(store_url: str) -> None:
    async with opened(store_url) as stores:
        worker = await stores.worker("a")
        changed = Worker(worker.id, {"b": "print-2"}, "elsewhere", 7)
        await stores.workers.register(changed)
        found = {each.id: each for each in await stores.workers.living(DEAD_AFTER)}
        assert found[worker.id] == changed


async def test_a_worker_registers_several_times_at_once(store_url: str, tenant: str) -> None:
    async with opened(store_url) as stores:
        worker = Worker(f"wrk_{tenant}", {"app": "print"})
        await asyncio.gather(*(stores.workers.register(worker) for _ in range(8)))
        assert [one.id for one in await stores.workers.living(60.0)].count(worker.id) == 1


async def test_the_long_silent_are_struck_out(store_url: str) -> None:
    async with opened(store_url) as stores:
        silent, living = await stores.worker(), await stores.worker()
        await stores.freeze(silent)
        assert await stores.workers.prune(DEAD_AFTER) >= 1
        assert not await stores.workers.beat(silent.id)
        assert await stores.workers.beat(living.id)
