"""Our cursors on SQLite: one trip to the connection's thread for each statement."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from lango.store.db.engines import create_engine, store_url
from lango.store.db.sqlite_driver import Connection

_THINGS = sa.Table(
    "things",
    sa.MetaData(),
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("name", sa.String, unique=True),
)


@pytest.fixture
async def engine(tmp_path: Path) -> AsyncIterator[AsyncEngine]:
    engine = create_engine(store_url(f"sqlite:///{tmp_path / 'a.db'}"))
    async with engine.begin() as connection:
        await connection.run_sync(_THINGS.metadata.create_all)
    yield engine
    await engine.dispose()


class Trips:
    """Counts what goes to the threads."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.count = 0
        driver: Any = Connection
        usual = driver._execute

        async def counted(connection: Any, *work: Any, **more: Any) -> Any:
            self.count += 1
            return await usual(connection, *work, **more)

        patch.setattr(driver, "_execute", counted)


async def names(connection: AsyncConnection) -> list[str]:
    return list(await connection.scalars(sa.select(_THINGS.c.name).order_by(_THINGS.c.id)))


async def test_a_statement_is_one_trip(
    engine: AsyncEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with engine.begin() as connection:
        trips = Trips(monkeypatch)
        await connection.execute(sa.insert(_THINGS), {"name": "one"})
        assert await names(connection) == ["one"]
        assert trips.count == 2
    assert trips.count <= 4  # the commit, and the rollback that SQLAlchemy sends after it


async def test_what_a_statement_tells_is_kept(engine: AsyncEngine) -> None:
    async with engine.begin() as connection:
        inserted = await connection.execute(sa.insert(_THINGS).values(name="one"))
        assert inserted.inserted_primary_key == (1,)
        many = sa.insert(_THINGS)
        await connection.execute(many, [{"name": "two"}, {"name": "three"}])
        kept = sa.insert(_THINGS).values(name="four").returning(_THINGS.c.id)
        assert await connection.scalar(kept) == 4
        changed = await connection.execute(sa.update(_THINGS).values(name=_THINGS.c.name + "!"))
        assert changed.rowcount == 4
        assert await names(connection) == ["one!", "two!", "three!", "four!"]


async def test_an_error_leaves_nothing_behind(engine: AsyncEngine) -> None:
    twice = sa.insert(_THINGS).values([{"name": "one"}, {"name": "one"}])
    with pytest.raises(IntegrityError):
        async with engine.begin() as connection:
            await connection.execute(twice)
    async with engine.begin() as connection:
        assert await names(connection) == []


async def test_a_statement_that_is_cancelled_is_rolled_back(engine: AsyncEngine) -> None:
    async def write(name: str) -> None:
        async with engine.begin() as connection:
            await connection.execute(sa.insert(_THINGS), {"name": name})
            await names(connection)

    for number in range(40):
        task = asyncio.create_task(write(f"n{number}"))
        for _ in range(number % 10):
            await asyncio.sleep(0)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
    await write("last")
    async with engine.begin() as connection:
        assert (await names(connection))[-1] == "last"
