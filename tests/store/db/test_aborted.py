"""Cancelled and aborted transactions: a connection that is out of step is never lent again."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress
from typing import Any

import asyncpg
import pytest
import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection

from lango.store.db.database import Database
from lango.store.db.retry import outlast_outages, states
from lango.store.db.statement import Prepared, Transaction
from tests.support.databases import direct

_PID = sa.text("select pg_backend_pid()")
_FAILS = sa.text("select 1 / 0")
_PID_OF_LEASE = Prepared(sa.select(sa.func.pg_backend_pid().label("pid")))
_DIVIDED = Prepared(sa.select((1 / sa.bindparam("by", type_=sa.Integer())).label("result")))


@pytest.fixture
async def database(postgres_url: str) -> AsyncGenerator[Database]:
    # A pooler gives the same server process to another connection.
    database = Database(direct(postgres_url), pool_size=2, pool_overflow=2)
    await database.open()
    yield database
    await database.close()


class Operator:
    """Cancels the next statement that begins with a word, as pg_cancel_backend may hit any."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.cancels = ""
        driver: Any = asyncpg.Connection
        usual = driver.execute

        async def execute(connection: Any, query: str, *arguments: Any, **options: Any) -> Any:
            if not self.cancels or not query.lower().startswith(self.cancels):
                return await usual(connection, query, *arguments, **options)
            self.cancels = ""
            raise asyncpg.QueryCanceledError("canceling statement due to user request")

        patch.setattr(driver, "execute", execute)


@pytest.fixture
def operator(monkeypatch: pytest.MonkeyPatch) -> Operator:
    return Operator(monkeypatch)


async def written(database: Database, *statements: sa.TextClause) -> int:
    """The server process of a transaction of these statements, which is tried only once."""
    async with database.begin() as connection:
        pid: int = (await connection.execute(_PID)).scalar_one()
        for statement in statements:
            await connection.execute(statement)
    return pid


async def read(database: Database) -> int:
    async with database.snapshot() as connection:
        return (await connection.execute(_PID)).scalar_one()


async def both_pooled(database: Database) -> set[int]:
    """The server processes of two connections that wait in the pool from now on."""
    async with database.snapshot() as one, database.snapshot() as other:
        return {(await each.execute(_PID)).scalar_one() for each in (one, other)}


@pytest.mark.parametrize("cancels", ["begin", "rollback"])
async def test_a_connection_out_of_step_is_dropped(
    cancels: str, database: Database, operator: Operator
) -> None:
    """No transaction after it is refused, and the other connections stay."""
    before = await both_pooled(database)
    operator.cancels = cancels
    with pytest.raises(DBAPIError) as caught:
        await written(database, _FAILS)
    assert not operator.cancels
    assert "57014" in states(caught.value)
    after = [await written(database) for _ in range(4)]
    assert len(before & set(after)) == 1
    assert len(set(after)) == 2


@pytest.mark.parametrize("cancels", ["begin", "rollback"])
async def test_a_reader_out_of_step_frees_its_connection(
    cancels: str, database: Database, operator: Operator
) -> None:
    engine = await database.open()
    operator.cancels = cancels
    with pytest.raises(DBAPIError) as caught:
        await read(database)
    assert not operator.cancels
    pool: Any = engine.pool
    assert pool.checkedout() == 0, "while the error is still known"
    assert "57014" in states(caught.value)
    assert await read(database) == await read(database)


@pytest.mark.parametrize("cancels", ["begin", "rollback", "commit"])
async def test_a_lease_out_of_step_is_dropped(
    cancels: str, database: Database, operator: Operator
) -> None:
    pids: list[int] = []

    async def work(transaction: Transaction) -> None:
        [row] = await transaction.all(_PID_OF_LEASE)
        pids.append(row.pid)
        if cancels == "rollback" and operator.cancels:
            await transaction.all(_DIVIDED, by=0)

    await database.transact(work)
    operator.cancels = cancels
    await database.transact(work)
    await database.transact(work)
    assert not operator.cancels
    assert pids[-1] == pids[-2] != pids[0]


async def test_a_lease_in_a_transaction_is_not_lent_again(database: Database) -> None:
    [[before]] = await database.fetch("select pg_backend_pid()")
    await database.fetch("begin")
    [[after]] = await database.fetch("select pg_backend_pid()")
    assert after != before
    assert await database.read(_PID_OF_LEASE)


Fails = Callable[[Database, list[int]], Awaitable[Any]]


async def on_a_connection(database: Database, pids: list[int]) -> None:
    """Go on in a transaction after an error in it, which is a mistake."""

    async def work(connection: AsyncConnection) -> None:
        pids.append((await connection.execute(_PID)).scalar_one())
        with suppress(DBAPIError):
            await connection.execute(_FAILS)
        await connection.execute(_PID)

    await database.write(work)


async def on_a_lease(database: Database, pids: list[int]) -> None:
    """The same with prepared statements."""

    async def work(transaction: Transaction) -> None:
        [row] = await transaction.all(_PID_OF_LEASE)
        pids.append(row.pid)
        with suppress(asyncpg.PostgresError):
            await transaction.all(_DIVIDED, by=0)
        await transaction.all(_PID_OF_LEASE)

    await database.transact(work)


@pytest.mark.parametrize("fails", [on_a_connection, on_a_lease])
@pytest.mark.parametrize("outlasts", [False, True])
async def test_an_aborted_transaction_is_tried_once_more(
    fails: Fails, outlasts: bool, database: Database
) -> None:
    """With a new connection; what fails there as well would fail for ever."""
    pids: list[int] = []

    async def run() -> None:
        if outlasts:
            outlast_outages()
        await fails(database, pids)

    async with asyncio.timeout(20):
        with pytest.raises(Exception, match="current transaction is aborted") as caught:
            await asyncio.create_task(run())
    assert "25P02" in states(caught.value)
    assert len(pids) == len(set(pids)) == 2
    assert await written(database)
