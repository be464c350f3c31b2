"""Whether a store takes writes, and what it says when it does not."""

import os

import pytest
import sqlalchemy as sa

from faults.database.full_disk import small_disk
from lango.errors import StoreError, StoreUnavailableError
from lango.store.schema import migrate
from lango.store.schema.tables import app_states
from lango.store.sessions.store import SqlSessionStore
from tests.support.databases import direct

_PROBES = 500  # more than fit into what a full disk has left of the write-ahead log


async def test_a_store_that_takes_writes_keeps_nothing_of_the_test(store_url: str) -> None:
    async with SqlSessionStore(store_url) as store:
        before = await _states(store)
        for _ in range(3):
            await store.check_writes()
        assert await _states(store) == before


async def _states(store: SqlSessionStore) -> int:
    async with store.database.snapshot() as connection:
        count = await connection.scalar(sa.select(sa.func.count()).select_from(app_states))
    return count or 0


async def test_a_read_only_server(postgres_url: str) -> None:
    async with SqlSessionStore(f"{direct(postgres_url)}?default_transaction_read_only=on") as store:
        with pytest.raises(StoreUnavailableError, match="read-only transaction"):
            await store.check_writes()


async def test_a_read_only_file(sqlite_url: str) -> None:
    async with SqlSessionStore(sqlite_url):
        path = sqlite_url.removeprefix("sqlite:///")
        async with SqlSessionStore(f"sqlite:///file:{path}?mode=ro&uri=true") as store:
            await store.check()
            with pytest.raises(StoreError, match="readonly database"):
                await store.check_writes()


async def _until_refused(store: SqlSessionStore) -> None:
    for _ in range(_PROBES):
        await store.check_writes()


async def test_a_full_disk() -> None:
    """It is well again once there is room."""
    with small_disk() as disk:
        url = f"sqlite:///{disk.folder / 'lango.db'}"
        await migrate.upgrade(url)
        async with SqlSessionStore(url) as store:
            await store.check_writes()
            disk.fill([os.getpid()])
            try:
                with pytest.raises(StoreUnavailableError, match=r"full|disk I/O error"):
                    await _until_refused(store)
                await store.check()
            finally:
                disk.free()
            await store.check_writes()
