"""Who comes in a crowd goes through a few at a time."""

import asyncio

from lango.providers.policy.loop_throttle import LoopThrottle

AT_ONCE = 3


class House:
    """Notes who came in, and lets them stay."""

    def __init__(self) -> None:
        self.inside: list[int] = []
        self.door = LoopThrottle(AT_ONCE)

    async def _stay(self, number: int) -> None:
        await self.door.enter()
        self.inside.append(number)
        await asyncio.Event().wait()

    def come(self, number: int) -> asyncio.Task[None]:
        return asyncio.create_task(self._stay(number))


async def entered(house: House, guests: int) -> list[int]:
    """How many came in with each pass of the loop, until all of them are inside."""
    counts: list[int] = []
    while len(house.inside) < guests:
        before = len(house.inside)
        await asyncio.sleep(0)
        counts.append(len(house.inside) - before)
    return counts


async def leave(guests: list[asyncio.Task[None]]) -> None:
    for guest in guests:
        guest.cancel()
    await asyncio.gather(*guests, return_exceptions=True)


async def test_a_crowd_comes_in_order_a_few_with_each_pass() -> None:
    house = House()
    guests = [house.come(number) for number in range(20)]
    counts = await entered(house, 20)
    assert max(counts) == AT_ONCE
    assert house.inside == list(range(20))
    await leave(guests)


async def test_who_comes_alone_does_not_wait() -> None:
    house = House()
    guests: list[asyncio.Task[None]] = []
    for number in range(2 * AT_ONCE):
        guests.append(house.come(number))
        await asyncio.sleep(0)
        assert house.inside == list(range(number + 1))
        await asyncio.sleep(0)
    await leave(guests)


async def test_a_cancelled_wait_blocks_no_other() -> None:
    house = House()
    guests = [house.come(number) for number in range(3 * AT_ONCE)]
    await asyncio.sleep(0)
    for guest in guests[AT_ONCE:-1]:
        guest.cancel()
    await entered(house, AT_ONCE + 1)
    assert house.inside == [*range(AT_ONCE), 3 * AT_ONCE - 1]
    await leave(guests)
