"""Prepared statements on both databases, and the leased connections that run them on PostgreSQL."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.exc import StatementError

from faults.database.proxy import Proxy, ReplyFault
from lango.store.db.clock import NOW, ago, seconds
from lango.store.db.database import Database
from lango.store.db.statement import Prepared, Transaction
from lango.store.schema.tables import sessions, workers
from lango.store.sessions.store import SqlSessionStore
from tests.store.rows import beside, created, key, until_waiting
from tests.support.databases import direct

_MINE = (sessions.c.tenant == sa.bindparam("of"), sessions.c.id == sa.bindparam("named"))
_TITLE = Prepared(sa.select(sessions.c.title, sessions.c.state).where(*_MINE))
_RENAME = Prepared(sa.update(sessions).where(*_MINE).returning(sessions.c.title))
_ENTER = Prepared(sa.insert(workers))
_ENTERED = Prepared(
    sa.select(workers.c.id, workers.c.apps).where(workers.c.host == sa.bindparam("on_host"))
)
_CLOCK = Prepared(sa.select(NOW.label("now"), ago("long").label("then")))
_SLEEP = Prepared(sa.select(sa.func.pg_sleep(sa.bindparam("time")).label("slept")))


async def _titled(database: Database, tenant: str) -> str:
    (row,) = await database.read(_TITLE, of=tenant, named="s")
    return row.title


async def test_values_are_given_by_their_names(store_url: str, tenant: str) -> None:
    async with SqlSessionStore(store_url) as store:
        await created(store, key(tenant))

        async def rename(transaction: Transaction) -> str:
            renamed = await transaction.one(_RENAME, of=tenant, named="s", title="new")
            assert renamed is not None
            assert await transaction.one(_RENAME, of=tenant, named="other", title="x") is None
            return renamed.title

        assert await store.database.transact(rename) == "new"
        (row,) = await store.database.read(_TITLE, named="s", of=tenant)
        assert (row.title, row.state) == ("new", {})


async def test_json_goes_in_and_comes_out(store_url: str, tenant: str) -> None:
    async with SqlSessionStore(store_url) as store:
        rows: list[dict[str, Any]] = [
            {"id": f"{tenant}{n}", "apps": {"a": 'é"'}, "host": tenant, "pid": n} for n in range(2)
        ]

        async def enter(transaction: Transaction) -> None:
            clock = await transaction.one(_CLOCK, long=timedelta())
            assert clock is not None
            times = {"started": clock.now, "beat": clock.then}
            await transaction.each(_ENTER, [row | times for row in rows])

        await store.database.transact(enter)
        found = await store.database.read(_ENTERED, on_host=tenant)
        assert {row.id for row in found} == {row["id"] for row in rows}
        assert [row.apps for row in found] == [{"a": 'é"'}] * 2


async def test_times_are_the_databases(store_url: str) -> None:
    async with SqlSessionStore(store_url) as store:
        (row,) = await store.database.read(_CLOCK, long=timedelta(hours=1))
        assert seconds(row.now) - seconds(row.then) == pytest.approx(3600, abs=5)


async def test_a_parameter_without_a_value_is_a_mistake(store_url: str, tenant: str) -> None:
    async with SqlSessionStore(store_url) as store:
        with pytest.raises((TypeError, StatementError), match="named"):
            await store.database.read(_TITLE, of=tenant)


async def test_more_than_one_row_is_a_mistake(store_url: str, tenant: str) -> None:
    async with SqlSessionStore(store_url) as store:
        for name in ("one", "two"):
            await created(store, key(tenant, name))
        both = Prepared(sa.select(sessions.c.id).where(sessions.c.tenant == sa.bindparam("of")))
        with pytest.raises(LookupError, match="2 rows"):
            await store.database.transact(lambda transaction: transaction.one(both, of=tenant))


async def test_a_transaction_is_all_or_nothing(store_url: str, tenant: str) -> None:
    async with SqlSessionStore(store_url) as store:
        await created(store, key(tenant))

        async def fail(transaction: Transaction) -> None:
            await transaction.all(_RENAME, of=tenant, named="s", title="half")
            raise KeyError("the other half")

        with pytest.raises(KeyError):
            await store.database.transact(fail)
        assert not await _titled(store.database, tenant)


async def test_a_refused_statement_leaves_the_connection_good(postgres_url: str) -> None:
    """The next one has the same server process, and no rest of a transaction."""
    pid = Prepared(sa.select(sa.func.pg_backend_pid().label("pid")))
    divided = Prepared(sa.select((1 / sa.bindparam("by", type_=sa.Integer())).label("result")))
    async with SqlSessionStore(postgres_url) as store:
        (before,) = await store.database.read(pid)

        async def refused(transaction: Transaction) -> None:
            await transaction.one(divided, by=0)

        with pytest.raises(Exception, match="division by zero"):
            await store.database.transact(refused)
        (after,) = await store.database.read(pid)
        assert after == before


async def test_a_cancelled_transaction_frees_its_rows(postgres_url: str, tenant: str) -> None:
    async with SqlSessionStore(postgres_url) as store:
        await created(store, key(tenant))
        holds = asyncio.Event()

        async def hold(transaction: Transaction) -> None:
            await transaction.all(_RENAME, of=tenant, named="s", title="half")
            holds.set()
            await transaction.one(_SLEEP, time=60.0)

        holding = asyncio.create_task(store.database.transact(hold))
        await holds.wait()
        holding.cancel()
        with pytest.raises(asyncio.CancelledError):
            await holding
        async with asyncio.timeout(30), beside(postgres_url) as connection:
            free = sa.select(sessions.c.title).where(sessions.c.tenant == tenant).with_for_update()
            assert not await connection.scalar(free)
        assert not await _titled(store.database, tenant)


async def test_transactions_leave_room_for_single_statements(
    postgres_url: str, tenant: str
) -> None:
    """However many of them wait for one row."""
    async with SqlSessionStore(postgres_url) as store:
        await created(store, key(tenant))

        async def rename(transaction: Transaction) -> None:
            await transaction.all(_RENAME, of=tenant, named="s", title="new")

        lock = sa.select(sessions.c.pk).where(sessions.c.tenant == tenant).with_for_update()
        async with beside(postgres_url) as connection:
            await connection.execute(lock)
            waiting = [asyncio.create_task(store.database.transact(rename)) for _ in range(20)]
            async with asyncio.timeout(30):
                assert not await _titled(store.database, tenant)
            assert not any(task.done() for task in waiting)
        await asyncio.gather(*waiting)
        assert await _titled(store.database, tenant) == "new"


async def test_a_statement_that_locks_sees_what_it_waited_for(
    postgres_url: str, tenant: str
) -> None:
    """In one run it would not: it counts by the snapshot that it had before its wait."""
    count = """
    with s as (select pk from sessions where pk = $2 for update)
    select $1::boolean, $3::text, (select count(*) from workers where host = $4) from s"""
    async with SqlSessionStore(postgres_url) as store:
        ref = await created(store, key(tenant))
        async with beside(postgres_url) as other:
            await other.execute(
                sa.select(sessions.c.pk).where(sessions.c.pk == ref.pk).with_for_update()
            )
            counting = asyncio.create_task(
                store.database.fetch_locked(count, ref.pk, "second", tenant, locking=1)
            )
            await until_waiting(postgres_url)
            now = {"started": sa.func.now(), "beat": sa.func.now()}
            new = sa.insert(workers).values(id=tenant, apps={}, host=tenant, pid=1, **now)
            await other.execute(new)
            assert not counting.done()
        assert await counting == [["second", 1]]


async def test_a_lost_reply_to_the_commit_of_a_leased_connection(
    postgres_url: str, tenant: str
) -> None:
    """The proxy of the fault rows loses it, and all of the work is done again."""
    lost: list[str] = []

    def once(commit: str) -> ReplyFault | None:
        if commit != "commit" or lost:
            return None
        lost.append(commit)
        return ReplyFault(0.0, arrives=False)

    async with Proxy(direct(postgres_url), once) as proxy, SqlSessionStore(proxy.url) as store:
        await created(store, key(tenant))
        lost.clear()
        runs = 0

        async def rename(transaction: Transaction) -> None:
            nonlocal runs
            runs += 1
            await transaction.one(_RENAME, of=tenant, named="s", title=f"run {runs}")

        await store.database.transact(rename)
        assert (lost, runs) == (["commit"], 2)
        assert await _titled(store.database, tenant) == "run 2"
