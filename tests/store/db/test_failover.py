"""A server that becomes read-only, and connections that stay so after it takes writes again."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
import sqlalchemy as sa
from sqlalchemy import make_url
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection

from lango.core.ids import new_id
from lango.errors import StoreUnavailableError
from lango.store.db.statement import Prepared
from lango.store.sessions.entries import SessionRef
from lango.store.sessions.store import SqlSessionStore
from tests.store.rows import created, key, raw, said
from tests.support.databases import direct, temporary_postgres


@asynccontextmanager
async def demoted(url: str) -> AsyncGenerator[None]:
    """Inside, all connections of the database are cut, and new ones are read-only for good."""
    name = make_url(url).database
    others = "select pg_terminate_backend(pid) from pg_stat_activity where datname = $1"
    admin = make_url(direct(url)).set(database="postgres").render_as_string(hide_password=False)
    async with raw(admin) as server:
        await server.execute(f'alter database "{name}" set default_transaction_read_only = on')
        await server.execute(others, name)
        yield
        await server.execute(f'alter database "{name}" reset default_transaction_read_only')


async def _pooled(store: SqlSessionStore) -> None:
    async def wait(connection: AsyncConnection) -> None:
        await connection.exec_driver_sql("select pg_sleep(0.05)")

    await store.database.read(wait)


async def _leased(store: SqlSessionStore) -> None:
    await store.database.read(Prepared(sa.select(sa.func.pg_sleep(0.05).label("slept"))))


async def _renames(store: SqlSessionStore, ref: SessionRef) -> None:
    await store.rename(ref.key, "new")


async def _appends(store: SqlSessionStore, ref: SessionRef) -> None:
    await store.append(ref, said(new_id("evt")))


@pytest.mark.parametrize(("reads", "writes"), [(_pooled, _renames), (_leased, _appends)])
async def test_writes_go_on_when_the_server_takes_them_again(
    reads: Callable[[SqlSessionStore], Awaitable[None]],
    writes: Callable[[SqlSessionStore, SessionRef], Awaitable[None]],
) -> None:
    async with temporary_postgres() as url, SqlSessionStore(url) as store:
        ref = await created(store, key("t", "s"))
        async with demoted(url):
            await asyncio.gather(*(reads(store) for _ in range(4)))  # open connections, which stay
            writing = asyncio.ensure_future(writes(store, ref))
            await asyncio.sleep(0.5)
            assert not writing.done()
            await asyncio.gather(*(reads(store) for _ in range(4)))
        await writing
        await asyncio.gather(*(writes(store, ref) for _ in range(4)))


async def test_a_read_only_server_is_not_ready() -> None:
    async with temporary_postgres() as url, SqlSessionStore(url) as store:
        await store.check()
        async with demoted(url):
            assert "read-only" in await _first_refusal(store)
        await store.check()


async def _first_refusal(store: SqlSessionStore) -> str:
    """What the store says once the connections that were cut are replaced."""
    while True:
        try:
            await store.check()
        except StoreUnavailableError as refusal:
            return str(refusal)
        except DBAPIError:  # of a connection that was cut
            await asyncio.sleep(0.01)
