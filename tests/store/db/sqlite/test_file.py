"""A SQLite file on the event loop's own thread: no task keeps others from the loop or the file."""

import asyncio
import sqlite3
from contextlib import closing
from typing import Self
from unittest.mock import AsyncMock

import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from lango.errors import StoreError
from lango.store.db.database import Database
from lango.store.db.sqlite.driver import InlineConnection
from lango.store.db.statement import Prepared
from lango.store.schema.tables import app_states

COUNT = Prepared(sa.select(sa.func.count().label("rows")).select_from(app_states))


class Passes:
    """Counts the passes of the event loop."""

    count = 0

    async def __aenter__(self) -> Self:
        self._counting = asyncio.create_task(self._run())
        return self

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(0)
            self.count += 1

    async def __aexit__(self, *_: object) -> None:
        self._counting.cancel()
        await asyncio.wait([self._counting])


async def insert(connection: AsyncConnection, key: str) -> None:
    values = {"tenant": "t", "app_name": "a", "key": key, "value": 1}
    await connection.execute(sa.insert(app_states).values(values))


async def test_a_task_that_reads_in_a_loop_lets_other_tasks_run(database: Database) -> None:
    async with Passes() as passes:
        for _ in range(200):
            await database.read(COUNT)
    assert passes.count >= 199


async def test_writers_that_wait_for_a_long_write_all_write_in_the_next_passes(
    database: Database,
) -> None:
    """One writer for each pass would make a line that never ends on a busy event loop."""
    begun, ends, written_in = asyncio.Event(), asyncio.Event(), list[int]()

    async def write_long(connection: AsyncConnection) -> None:
        await insert(connection, "long")
        begun.set()
        await ends.wait()

    async def write(connection: AsyncConnection, key: str) -> None:
        await insert(connection, key)
        written_in.append(passes.count)

    await database.write(insert, "first")  # connected
    async with Passes() as passes:
        long = asyncio.create_task(database.write(write_long, is_long=True))
        await begun.wait()
        short = [asyncio.create_task(database.write(write, str(number))) for number in range(12)]
        await asyncio.sleep(0.05)
        assert written_in == []
        ends.set()
        await asyncio.gather(long, *short)
    assert written_in[-1] - written_in[0] <= 4


async def test_a_transaction_that_cannot_be_rolled_back_harms_no_later_one(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = sqlite3.OperationalError("disk I/O error")

    async def fail(_: AsyncConnection) -> None:
        raise LookupError

    await database.write(insert, "before")
    with monkeypatch.context() as during:
        during.setattr(InlineConnection, "rollback", AsyncMock(side_effect=failed))
        with pytest.raises((LookupError, StoreError)):
            await database.write(fail)
    await database.write(insert, "after")
    assert [row.rows for row in await database.read(COUNT)] == [2]


async def test_a_write_that_is_cancelled_while_the_file_is_locked_harms_no_later_one(
    database: Database,
) -> None:
    await database.write(insert, "before")
    with closing(sqlite3.connect(str(database.url.database), isolation_level=None)) as other:
        other.execute("begin immediate")
        writing = asyncio.create_task(database.write(insert, "cancelled"))
        await asyncio.sleep(0.05)
        writing.cancel()
        await asyncio.wait([writing], timeout=10)
        assert writing.cancelled()
        other.execute("rollback")
    await database.write(insert, "after")
    assert [row.rows for row in await database.read(COUNT)] == [2]


async def test_the_statements_of_a_brief_snapshot_see_the_same(database: Database) -> None:
    await database.write(insert, "before")
    file = str(database.url.database)
    async with database.brief_snapshot() as transaction:
        first = await transaction.one(COUNT)
        with closing(sqlite3.connect(file, isolation_level=None)) as another_process:
            another_process.execute("delete from app_states")
        second = await transaction.one(COUNT)
    assert first == second
    assert [row.rows for row in await database.read(COUNT)] == [0]


async def test_a_brief_snapshot_cannot_keep_the_file_from_writers(database: Database) -> None:
    async def read_and_fail() -> None:
        async with database.brief_snapshot() as transaction:
            await transaction.one(COUNT)
            raise LookupError

    with pytest.raises(LookupError):
        await read_and_fail()
    await database.write(insert, "after")
    assert [row.rows for row in await database.read(COUNT)] == [1]
