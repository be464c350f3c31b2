"""The clock that watches a stream."""

import asyncio

import pytest

from lango.providers.policy.timeouts import Watch


class Clock:
    """The clock of the event loop, which a test moves: the pauses of a busy machine are short."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.loop = asyncio.get_running_loop()
        self._ahead, time = 0.0, self.loop.time
        monkeypatch.setattr(self.loop, "time", lambda: time() + self._ahead)

    def move(self, seconds: float) -> None:
        self._ahead += seconds

    async def wait(self, seconds: float) -> None:
        """Let so much time pass, and the timers that are due then."""
        self.move(seconds)
        for _ in range(3):
            await asyncio.sleep(0)


async def test_a_wait_that_is_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    watch = Watch(idle=600.0)
    for _ in range(12):  # many short waits are no long one
        with watch:
            await clock.wait(60.0)
    await clock.wait(700.0)  # between them the clock stands still
    with watch:
        await asyncio.sleep(0)
    clock.loop.call_soon(clock.move, 600.0)  # in the next wait
    with pytest.raises(TimeoutError), watch:
        await asyncio.sleep(3600)
    with watch:  # it can be used again
        await asyncio.sleep(0)
    watch.close()


async def test_a_wait_that_gets_shorter() -> None:
    watch = Watch(idle=60.0)
    with watch:
        await asyncio.sleep(0)
    watch.shorten(0.1)
    watch.shorten(90.0)  # there is no way back
    with pytest.raises(TimeoutError), watch:
        await asyncio.sleep(60)


async def test_a_deadline_for_all_waits() -> None:
    watch = Watch(deadline=asyncio.get_running_loop().time() + 0.3)
    for _ in range(2):
        with pytest.raises(TimeoutError), watch:
            await asyncio.sleep(60)


async def test_being_cancelled_is_not_being_late() -> None:
    async def wait() -> None:
        with Watch(idle=60.0):
            await asyncio.sleep(60)

    task = asyncio.create_task(wait())
    await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_the_inner_wait_strikes_first() -> None:
    outer, inner = Watch(idle=60.0), Watch(idle=0.1)

    async def wait() -> str:
        try:
            with inner:
                await asyncio.sleep(60)
        except TimeoutError:
            return "inner"
        return "none"

    with outer:
        assert await wait() == "inner"
    outer.shorten(0.1)
    with pytest.raises(TimeoutError), outer:
        await asyncio.sleep(60)
