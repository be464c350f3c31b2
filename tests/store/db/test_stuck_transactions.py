"""A process silent between the two messages of a statement, and who waits for its rows."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from importlib import import_module
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from lango.store.db.engines import NAME
from lango.store.schema.tables import sessions
from lango.store.sessions.store import SqlSessionStore
from tests.store.rows import NO_TIMEOUTS, created, key, said, texts
from tests.support.databases import direct


@asynccontextmanager
async def silent(url: str, name: str, tenant: str, session_id: str) -> AsyncGenerator[Any]:
    """A connection that has locked a session, parsed a statement, and sends nothing more."""
    asyncpg: Any = import_module("asyncpg")  # it publishes no types
    settings = {"application_name": name, **NO_TIMEOUTS}
    connection = await asyncpg.connect(direct(url), server_settings=settings)
    try:
        await connection.execute("begin")
        lock = "select * from sessions where tenant = $1 and id = $2 for update"
        assert await connection.fetch(lock, tenant, session_id)
        await connection.prepare("update sessions set title = 'late' where tenant = $1")
        yield connection
    finally:
        connection.terminate()


async def test_rows_of_the_silent_are_freed(postgres_url: str, tenant: str) -> None:
    store = SqlSessionStore(postgres_url)
    appended, changed = key(tenant, "appended"), key(tenant, "changed")
    ref = await created(store, appended)
    await created(store, changed)

    async def rename(connection: AsyncConnection) -> None:
        statement = sa.update(sessions).where(
            sessions.c.tenant == tenant, sessions.c.id == "changed"
        )
        await connection.execute(statement.values(title="new"))

    one = silent(postgres_url, NAME, tenant, "appended")
    other = silent(postgres_url, NAME, tenant, "changed")
    async with one, other, asyncio.timeout(30):
        await asyncio.gather(store.append(ref, said("e1", "heard")), store.database.write(rename))
    assert await texts(store, appended) == ["heard"]
    await store.close()


async def test_the_silence_of_others_is_not_ours(postgres_url: str, tenant: str) -> None:
    store = SqlSessionStore(postgres_url)
    ref = await created(store, key(tenant, "theirs"))
    async with silent(postgres_url, "another application", tenant, "theirs") as them:
        waiting = asyncio.create_task(store.append(ref, said("e1", "heard")))
        await asyncio.sleep(8)  # longer than a wait for a row, after which the silent are ended
        assert not waiting.done()
        await them.execute("rollback")
        await waiting
    await store.close()
