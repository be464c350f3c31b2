"""A store that was closed, and those who come late."""

import asyncio

import pytest

from lango.errors import StoreError
from lango.store.sessions.store import SqlSessionStore
from tests.store.rows import created, key, said, texts


async def test_what_is_closed_stays_closed_until_it_is_opened(store_url: str, tenant: str) -> None:
    store = SqlSessionStore(store_url)
    where = key(tenant)
    ref = await created(store, where)
    await store.close()
    for late in (store.append(ref, said("e1")), store.load(where, None), store.rename(where, "t")):
        with pytest.raises(StoreError, match="The store is closed"):
            await late
    await store.open()
    await store.append(ref, said("e1", "in time"))
    assert await texts(store, where) == ["in time"]
    await store.close()


async def test_a_store_that_is_closed_while_it_opens_is_closed(postgres_url: str) -> None:
    store = SqlSessionStore(postgres_url)
    opening = asyncio.create_task(store.open())
    await asyncio.sleep(0)
    await store.close()
    await opening
    with pytest.raises(StoreError, match="The store is closed"):
        await store.list_all("tenant", "app", "user")
