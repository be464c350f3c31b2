"""Whose turn it is: tenants take turns, and so do the keys of a tenant."""

from collections import Counter

import pytest

from lango.core.ids import new_id
from lango.store.turns.heads import FLOWS
from lango.store.turns.rows import Claim
from lango.store.turns.workers import Worker
from tests.store.rows import execute, key
from tests.store.turns.turn_stores import TurnStores, backlog, opened, said
from tests.store.turns.watch import Reads, Watch


class Room:
    """A worker that runs up to `at_once` turns of an app of its own."""

    def __init__(self, stores: TurnStores, worker: Worker, app: str, at_once: int) -> None:
        self.stores, self.worker, self.app, self.at_once = stores, worker, app, at_once
        self.running: list[Claim] = []
        self.begun: list[str] = []  # tenants, or keys, in the order in which their turns began

    @classmethod
    async def of(cls, stores: TurnStores, at_once: int = 8) -> "Room":
        app = new_id("app")
        return cls(stores, await stores.worker(app), app, at_once)

    async def submit(self, tenant: str, count: int, key_id: str | None = None) -> None:
        """Hand in turns, each in a session of its own."""
        for _ in range(count):
            where = key(tenant, new_id("s"), app=self.app)
            await self.stores.session(where)
            await self.stores.turns.submit(where, said(key_id=key_id))

    async def begin(self, count: int) -> None:
        """Begin so many turns, where need be when one that ran has ended."""
        for _ in range(count):
            if len(self.running) == self.at_once:
                await self.stores.finish(self.running.pop(0))
            head = (await self.stores.queue.heads([self.app], limit=2))[0]
            claim = await self.stores.claim(head.session_pk, self.worker)
            self.running.append(claim)
            self.begun.append(claim.turn.key_id or claim.turn.session.tenant)


@pytest.mark.parametrize("at_once", [8, 1])
async def test_a_tenant_that_comes_late_does_not_wait_for_all_before_it(
    at_once: int, store_url: str, tenant: str
) -> None:
    async with opened(store_url) as stores:
        room, other = await Room.of(stores, at_once), f"{tenant}-other"
        await room.submit(tenant, 100)
        await room.begin(8)
        await room.submit(other, 10)
        await room.begin(50)
        assert room.begun.count(other) == 10


@pytest.mark.parametrize("each_its_key", [False, True], ids=["one key", "a key each"])
async def test_a_tenant_does_not_wait_for_a_hundred_thousand_turns_of_another(
    each_its_key: bool, store_url: str, tenant: str
) -> None:
    found: list[Reads] = []
    async with opened(store_url) as stores:
        for count in (1_000, 100_000):
            room, busy, other = (
                await Room.of(stores),
                f"{tenant}-{count}",
                f"{tenant}-{count}-other",
            )
            keys = count if each_its_key else 1
            async with backlog(store_url, busy, room.app, count, keys=keys):
                await room.begin(8)
                await room.submit(other, 10)
                found.append(await _reads_for_work(stores, room.app))
                await room.begin(50)
                assert room.begun.count(other) == 10
    few, many = found
    # The first claims leave other turns running; a deeper index has a few more pages.
    assert many.rows <= 1.1 * few.rows + 50
    assert many.buffers <= 2 * few.buffers


async def _reads_for_work(stores: TurnStores, app: str) -> Reads:
    """What a query for work reads."""
    async with Watch(stores) as watch:
        await stores.queue.heads([app], limit=32)
    return await watch.reads()


async def test_the_second_key_of_a_tenant_waits_only_for_turns_of_its_tenant(
    store_url: str, tenant: str
) -> None:
    async with opened(store_url) as stores:
        room, other = await Room.of(stores), f"{tenant}-other"
        async with backlog(store_url, tenant, room.app, 20 * FLOWS, keys=20 * FLOWS):
            await room.begin(8)
            await room.submit(other, 5, "first")
            await room.submit(other, 5, "second")
            await room.begin(50)
            assert (room.begun.count("first"), room.begun.count("second")) == (5, 5)


async def test_the_keys_of_a_tenant_take_turns_too(store_url: str, tenant: str) -> None:
    async with opened(store_url) as stores:
        room = await Room.of(stores)
        await room.submit(tenant, 40, "busy")
        await room.begin(8)
        await room.submit(tenant, 5, "late")
        await room.begin(15)
        assert room.begun.count("late") == 5


async def test_a_tenant_has_no_more_of_a_worker_for_having_more_keys(
    store_url: str, tenant: str
) -> None:
    async with opened(store_url) as stores:
        room, other = await Room.of(stores), f"{tenant}-other"
        for number in range(5):
            await room.submit(tenant, 10, f"key-{number}")
        await room.submit(other, 50)
        await room.begin(60)
        assert 28 <= room.begun.count(other) <= 32
        assert min(Counter(room.begun)[f"key-{number}"] for number in range(5)) > 0


async def test_one_tenant_is_served_in_the_order_of_waiting(store_url: str, tenant: str) -> None:
    async with opened(store_url) as stores:
        room = await Room.of(stores)
        await room.submit(tenant, 8)
        await room.begin(8)
        since = [claim.turn.created for claim in room.running]
        assert since == sorted(since)


async def test_no_tenant_of_many_is_left_out(store_url: str, tenant: str) -> None:
    count = FLOWS + 10
    async with opened(store_url) as stores:
        room = await Room.of(stores)
        for number in range(count):
            await room.submit(f"{tenant}-{number:03}", 2)
        await room.begin(2 * count)
        assert set(Counter(room.begun).values()) == {2}
        assert await stores.queue.heads([room.app]) == []


async def test_turns_of_older_code_are_served(store_url: str, tenant: str) -> None:
    """They have no flow; nor have those that were handed in before there were any."""
    async with opened(store_url) as stores:
        room = await Room.of(stores)
        await room.submit(tenant, 3)
        await execute(
            store_url,
            f"update turns set tenant = '', flow = '' where app = '{room.app}'",  # noqa: S608
        )
        await room.begin(3)
        assert room.begun == [tenant] * 3
