"""LoopThrottle admits waiting tasks in order, a few with each pass of the event loop."""

import asyncio

from lango.providers.policy.loop_throttle import LoopThrottle

AT_ONCE = 3


class ThrottledTasks:
    """Starts tasks that enter a throttle and stay, and records the order in which they enter."""

    def __init__(self) -> None:
        self.entered: list[int] = []
        self.throttle = LoopThrottle(AT_ONCE)

    async def _stay(self, number: int) -> None:
        await self.throttle.enter()
        self.entered.append(number)
        await asyncio.Event().wait()

    def start(self, number: int) -> asyncio.Task[None]:
        return asyncio.create_task(self._stay(number))


async def entries_per_pass(throttled: ThrottledTasks, count: int) -> list[int]:
    """The number of tasks that enter with each pass of the loop, until `count` have entered."""
    entries: list[int] = []
    while len(throttled.entered) < count:
        before = len(throttled.entered)
        await asyncio.sleep(0)
        entries.append(len(throttled.entered) - before)
    return entries


async def cancel(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_many_tasks_enter_in_order_a_few_with_each_pass() -> None:
    throttled = ThrottledTasks()
    tasks = [throttled.start(number) for number in range(20)]
    entries = await entries_per_pass(throttled, 20)
    assert max(entries) == AT_ONCE
    assert throttled.entered == list(range(20))
    await cancel(tasks)


async def test_a_single_task_does_not_wait() -> None:
    throttled = ThrottledTasks()
    tasks: list[asyncio.Task[None]] = []
    for number in range(2 * AT_ONCE):
        tasks.append(throttled.start(number))
        await asyncio.sleep(0)
        assert throttled.entered == list(range(number + 1))
        await asyncio.sleep(0)
    await cancel(tasks)


async def test_a_cancelled_wait_blocks_no_other() -> None:
    throttled = ThrottledTasks()
    tasks = [throttled.start(number) for number in range(3 * AT_ONCE)]
    await asyncio.sleep(0)
    for task in tasks[AT_ONCE:-1]:
        task.cancel()
    await entries_per_pass(throttled, AT_ONCE + 1)
    assert throttled.entered == [*range(AT_ONCE), 3 * AT_ONCE - 1]
    await cancel(tasks)
