"""The state of all turns and workers, as metrics show it."""

from lango.core.fleet import FleetState, OpenTurnsOfApp
from lango.core.turns.events import Completed
from lango.store.insight.fleet import read_fleet
from lango.store.sessions.entries import SessionKey
from tests.store.turns.turn_stores import TurnStores, opened


def group(fleet: FleetState, app: str, state: str) -> OpenTurnsOfApp | None:
    return next((one for one in fleet.turns if (one.app, one.state) == (app, state)), None)


def count(fleet: FleetState, app: str, state: str) -> int:
    found = group(fleet, app, state)
    return found.count if found else 0


async def sessions_of(stores: TurnStores, app: str, tenant: str, number: int) -> list[int]:
    """The keys of sessions of two tenants, each with two turns."""
    pks: list[int] = []
    for n in range(number):
        key = SessionKey(f"{tenant}-{n % 2}", app, "ann", f"s{n}")
        pks.append((await stores.session(key)).pk or 0)
        for text in ("one", "two"):
            await stores.submit(key, text)
    return pks


async def test_the_open_turns_of_all_tenants(store_url: str, tenant: str) -> None:
    app = f"app-{tenant}"
    async with opened(store_url) as stores:
        pks = await sessions_of(stores, app, tenant, 3)
        worker = await stores.worker(app)
        before = await read_fleet(stores.sessions.database, dead_after=3600.0)
        assert (count(before, app, "queued"), count(before, app, "running")) == (6, 0)
        claim = await stores.claim(pks[0], worker)
        after = await read_fleet(stores.sessions.database, dead_after=3600.0)
        assert (count(after, app, "queued"), count(after, app, "running")) == (5, 1)
        oldest = group(after, app, "queued")
        assert oldest is not None
        assert oldest.oldest is not None
        assert 0 <= oldest.oldest < 3600
        assert after.unowned == before.unowned
        await stores.finish(claim)
        ended = await read_fleet(stores.sessions.database, dead_after=3600.0)
        assert (count(ended, app, "queued"), count(ended, app, "running")) == (5, 0)


async def test_turns_that_wait_behind_others_have_no_age(store_url: str, tenant: str) -> None:
    app = f"app-{tenant}"
    async with opened(store_url) as stores:
        [pk] = await sessions_of(stores, app, tenant, 1)
        claim = await stores.claim(pk, await stores.worker(app))
        behind = group(await read_fleet(stores.sessions.database), app, "queued")
        assert behind == OpenTurnsOfApp(app, "queued", 1, None)
        await stores.queue.close(claim, Completed())
        ready = group(await read_fleet(stores.sessions.database), app, "queued")
        assert ready is not None
        assert ready.oldest is not None


async def test_turns_of_a_silent_worker_have_none(store_url: str, tenant: str) -> None:
    app = f"app-{tenant}"
    async with opened(store_url) as stores:
        [pk] = await sessions_of(stores, app, tenant, 1)
        worker = await stores.worker(app)
        await stores.claim(pk, worker)
        before = await read_fleet(stores.sessions.database, dead_after=3600.0)
        await stores.freeze(worker)
        after = await read_fleet(stores.sessions.database, dead_after=3600.0)
        assert [one.count for one in after.unowned if one.app == app] == [1]
        assert (after.alive, after.silent) == (before.alive - 1, before.silent + 1)


async def test_the_most_workers_that_one_turn_has_lost(store_url: str, tenant: str) -> None:
    app = f"app-{tenant}"
    async with opened(store_url) as stores:
        pks = await sessions_of(stores, app, tenant, 2)
        for pk, deaths in zip(pks, (2, 1), strict=True):
            for _ in range(deaths):
                worker = await stores.worker(app)
                await stores.claim(pk, worker)
                await stores.freeze(worker)
            await stores.claim(pk, await stores.worker(app))
        fleet = await read_fleet(stores.sessions.database)
        assert [each.count for each in fleet.most_workers_lost if each.app == app] == [2]
