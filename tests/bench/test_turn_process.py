"""What is known of a process that runs turns."""

import asyncio
import time

from bench.turns.process import StallWatch, poll_until, resident


async def test_a_stall_is_counted_by_the_cpu_it_took() -> None:
    watch = StallWatch()
    await asyncio.sleep(0.02)
    began = time.thread_time()
    while time.thread_time() - began < 0.05:
        pass
    await asyncio.sleep(0.02)
    assert watch.worst >= 0.05


async def test_a_loop_that_sleeps_does_not_stall() -> None:
    before = time.thread_time()
    watch = StallWatch()
    await asyncio.sleep(0.1)
    assert watch.worst <= time.thread_time() - before


async def test_looking_ends_when_what_is_wanted_is_there() -> None:
    numbers = iter(range(10))

    async def look() -> int:
        return next(numbers)

    assert await poll_until(look, lambda number: number == 2) == 2
    assert next(numbers) == 3


def test_a_process_knows_its_memory() -> None:
    assert 1 < resident() < 100_000
