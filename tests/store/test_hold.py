"""A held database: no worker registers and no heartbeat counts until it is released."""

import asyncio
import logging
import subprocess
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from sqlalchemy import make_url

from faults.database.own_cluster import Cluster, own_cluster
from faults.turns.workspace import Workspace, turn_process
from lango.errors import DatabaseHeldError
from lango.store.hold import hold_database, read_hold, release_database
from lango.store.schema import migrate
from lango.store.turns.workers import Worker
from tests.store.rows import execute, key
from tests.store.turns.turn_stores import TurnStores, opened
from tests.support.databases import on_server, temporary_postgres, temporary_sqlite


@pytest.fixture(params=["sqlite", "postgresql"])
async def stores(request: pytest.FixtureRequest) -> AsyncGenerator[TurnStores]:
    """Stores on a database of their own: a hold concerns all that is in it."""
    make = temporary_sqlite if request.param == "sqlite" else temporary_postgres
    async with make() as url, opened(url) as at:
        yield at


async def test_a_new_database_is_not_held(stores: TurnStores) -> None:
    assert await read_hold(stores.sessions.database) is None
    assert not await release_database(stores.sessions.database)


async def test_a_held_database_has_no_workers(stores: TurnStores) -> None:
    database, worker = stores.sessions.database, await stores.worker()
    ref = await stores.session(key("t"))
    await hold_database(database)
    hold = await read_hold(database)
    assert hold is not None
    assert (hold.is_copy, "An operator holds" in str(hold)) == (False, True)
    await hold_database(database)
    assert (await read_hold(database)) == hold  # since the first time
    assert not await stores.workers.beat(worker.id)
    with pytest.raises(DatabaseHeldError, match="lango db release"):
        await stores.workers.register(Worker("wrk_new", {"a": "1"}))
    turn = await stores.submit(key("t"))
    assert turn.state == "queued"  # accepted all the same
    assert await release_database(database)
    assert await stores.workers.beat(worker.id)
    assert (await stores.claim(ref.pk, worker)).turn.id == turn.id


async def test_a_copy_is_held(stores: TurnStores) -> None:
    """As a dump has it: the identity of another database, or none at all."""
    database = stores.sessions.database
    for make_copy in ("update installation set identity = '1.2'", "delete from installation"):
        await execute(stores.url, make_copy)
        hold = await read_hold(database)
        assert hold is not None
        assert (hold.is_copy, "restored from a dump" in str(hold)) == (True, True)
        with pytest.raises(DatabaseHeldError):
            await stores.worker()
        assert await release_database(database)
        assert await read_hold(database) is None
        await stores.worker()


async def shop_in(cluster: Cluster) -> str:
    """The URL of a new database of a server: the first one, which always has the same number."""
    await on_server(cluster.url, "create database shop")
    return make_url(cluster.url).set(database="shop").render_as_string(hide_password=False)


async def is_copy(url: str) -> bool:
    async with opened(url) as stores:
        hold = await read_hold(stores.sessions.database)
        return hold is not None and hold.is_copy


async def test_every_restore_of_a_dump_is_seen(tmp_path: Path) -> None:
    """On a new server, whose numbers begin alike, and into the database that was dumped."""
    dump = str(tmp_path / "dump")
    with own_cluster() as first, own_cluster() as second:
        original, copy = await shop_in(first), await shop_in(second)
        await migrate.upgrade(original)
        assert not await is_copy(original)
        commands = (
            ("pg_dump", "--format", "custom", "--no-owner", "--file", dump, original),
            ("pg_restore", "--no-owner", "--exit-on-error", "--dbname", copy, dump),
            ("pg_restore", "--clean", "--no-owner", "--exit-on-error", "--dbname", original, dump),
        )
        for command in commands:
            await asyncio.to_thread(subprocess.run, command, check=True, timeout=120)
        assert await is_copy(copy)
        assert await is_copy(original)


async def test_a_worker_waits_for_the_release(
    stores: TurnStores, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await hold_database(stores.sessions.database)
    caplog.set_level(logging.WARNING, "lango")
    async with turn_process(Workspace(stores.url, "app", tmp_path)) as process:
        worker = process.worker()
        turn = await process.say("hello")
        starting = asyncio.create_task(worker.start_when_released())
        async with asyncio.timeout(60):
            while "lango db release" not in caplog.text:  # noqa: ASYNC110 - a log line is no event
                await asyncio.sleep(0.02)
        assert not starting.done()
        assert not worker.is_running
        await release_database(stores.sessions.database)
        await starting
        assert (await process.turns.wait(turn)).state == "completed"
        await worker.stop()
