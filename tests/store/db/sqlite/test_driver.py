"""Connections to SQLite: in threads, with one trip for each statement, and without threads."""

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError, OperationalError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from lango.store.db.engines import create_engine, store_url
from lango.store.db.retry import is_transient
from lango.store.db.sqlite.driver import ROLLED_BACK, ThreadConnection, inline
from lango.store.db.sqlite.engine import create_inline_engine, inline_opener
from lango.store.db.sqlite.log import WriteAheadLog

_THINGS = sa.Table(
    "things",
    sa.MetaData(),
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("name", sa.String, unique=True),
)


def engine_of(kind: str, url: sa.URL, busy_timeout: float = 30.0) -> AsyncEngine:
    if kind == "threads":
        return create_engine(url, statement_timeout=busy_timeout, pool_size=1)
    connect = inline(inline_opener(url, WriteAheadLog()), busy_timeout)
    return create_inline_engine(url, connect)


@pytest.fixture(params=["threads", "inline"])
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
async def engine(tmp_path: Path, kind: str) -> AsyncIterator[AsyncEngine]:
    engine = engine_of(kind, store_url(f"sqlite:///{tmp_path / 'a.db'}"))
    async with engine.begin() as connection:
        await connection.run_sync(_THINGS.metadata.create_all)
    yield engine
    await engine.dispose()


class Trips:
    """Counts what goes to the threads."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.count = 0
        driver: Any = ThreadConnection
        usual = driver._execute

        async def counted(connection: Any, *work: Any, **more: Any) -> Any:
            self.count += 1
            return await usual(connection, *work, **more)

        patch.setattr(driver, "_execute", counted)


async def names(connection: AsyncConnection) -> list[str]:
    return list(await connection.scalars(sa.select(_THINGS.c.name).order_by(_THINGS.c.id)))


@pytest.mark.parametrize("kind", ["threads"], indirect=True)
async def test_a_statement_is_one_trip(
    engine: AsyncEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with engine.begin():
        pass  # the pool has a connection
    trips = Trips(monkeypatch)
    async with engine.begin() as connection:
        await connection.execute(sa.insert(_THINGS), {"name": "one"})
        assert await names(connection) == ["one"]
        assert trips.count == 2
    assert trips.count == 3  # the commit; no rollback, as no transaction is open
    async with engine.begin():
        pass
    assert trips.count == 3


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


@pytest.mark.parametrize("kind", ["inline"], indirect=True)
async def test_a_transaction_without_threads_runs_no_other_task(engine: AsyncEngine) -> None:
    """So no tool that blocks the event loop can keep the only writer."""
    others: list[str] = []

    async def count() -> None:
        while True:
            others.append("ran")
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    await asyncio.sleep(0.01)
    threads = set(threading.enumerate())
    async with engine.begin() as connection:
        ran = len(others)
        await connection.execute(sa.insert(_THINGS), {"name": "one"})
        assert await names(connection) == ["one"]
        assert len(others) == ran
    counting.cancel()
    assert set(threading.enumerate()) <= threads  # one of an earlier test may end meanwhile


async def test_a_writer_waits_for_another_process_and_lets_the_loop_run(
    engine: AsyncEngine,
) -> None:
    other = sqlite3.connect(str(engine.url.database))
    other.execute("begin immediate")

    async def write() -> None:
        async with engine.begin() as connection:
            await connection.execute(sa.insert(_THINGS), {"name": "one"})

    try:
        writing = asyncio.create_task(write())
        done, _ = await asyncio.wait([writing], timeout=0.2)
        assert not done
        other.rollback()
        await asyncio.wait_for(writing, 20)
    finally:
        other.close()


async def test_a_transaction_that_did_not_begin_executes_nothing(
    engine: AsyncEngine, kind: str
) -> None:
    """Each statement would be a transaction of its own."""
    impatient = engine_of(kind, engine.url, 0.05)
    other = sqlite3.connect(str(engine.url.database))
    other.execute("begin immediate")

    async def write() -> None:
        async with impatient.begin() as connection:
            with pytest.raises(OperationalError, match="database is locked"):
                await connection.execute(sa.insert(_THINGS), {"name": "one"})
            other.rollback()
            await connection.execute(sa.insert(_THINGS), {"name": "two"})

    try:
        with pytest.raises(OperationalError, match=ROLLED_BACK) as error:
            await write()
        assert is_transient(error.value)
        async with impatient.begin() as connection:
            assert await names(connection) == []
    finally:
        other.close()
        await impatient.dispose()


async def test_a_transaction_that_sqlite_has_rolled_back_executes_nothing(
    engine: AsyncEngine,
) -> None:
    """A full disk, for one, ends the whole transaction."""

    async def write() -> None:
        async with engine.begin() as connection:
            await connection.execute(sa.insert(_THINGS), {"name": "one"})
            again = sa.insert(_THINGS).prefix_with("or rollback")
            with pytest.raises(IntegrityError):
                await connection.execute(again, {"name": "one"})
            await connection.execute(sa.insert(_THINGS), {"name": "two"})

    with pytest.raises(OperationalError, match=ROLLED_BACK):
        await write()
    async with engine.begin() as connection:
        assert await names(connection) == []


@pytest.mark.parametrize("kind", ["threads"], indirect=True)  # inline, no statement waits
async def test_a_rollback_waits_for_a_statement_that_was_cancelled(engine: AsyncEngine) -> None:
    """It may only just begin the transaction: the pool must not get the connection with it."""
    busy = sa.text(
        "with recursive n (i) as (select 1 union all select i + 1 from n where i < 200000) "
        "insert into things (name) select 'n' || count(*) from n"
    )

    async def write() -> None:
        async with engine.begin() as connection:
            await connection.execute(busy)

    for _ in range(5):
        writing = asyncio.create_task(write())
        await asyncio.sleep(0.01)
        writing.cancel()
        with suppress(asyncio.CancelledError):
            await writing
        async with engine.connect() as connection:
            driver: Any = (await connection.get_raw_connection()).driver_connection
            assert not driver.in_transaction
            assert await names(connection) == []


@pytest.mark.parametrize("kind", ["inline"], indirect=True)
async def test_a_writer_that_is_cancelled_while_it_waits_leaves_nothing_behind(
    engine: AsyncEngine,
) -> None:
    other = sqlite3.connect(str(engine.url.database))
    other.execute("begin immediate")

    async def write(name: str) -> None:
        async with engine.begin() as connection:
            await connection.execute(sa.insert(_THINGS), {"name": name})

    try:
        writing = asyncio.create_task(write("one"))
        await asyncio.sleep(0.05)
        writing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await writing
        other.rollback()
        await write("two")
        async with engine.connect() as connection:
            assert await names(connection) == ["two"]
    finally:
        other.close()


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
