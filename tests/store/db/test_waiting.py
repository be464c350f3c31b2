"""Waits for connections and for locked sessions: bounded, and not at the cost of other sessions."""

import asyncio
import sqlite3
from collections import Counter
from collections.abc import Generator
from contextlib import closing, contextmanager, nullcontext
from typing import Any

import pytest
import sqlalchemy as sa
from asyncpg.exceptions import InterfaceError
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy.ext.asyncio import AsyncConnection

from lango.core.context.model_calls import ModelAttempt, ModelCall
from lango.core.current import current_tenant
from lango.errors import StoreBusyError
from lango.store.db import engines
from lango.store.db import retry as faults
from lango.store.db.statement import Prepared
from lango.store.db.waiting import PER_SESSION, BriefLock, FairSemaphore, SessionQueues, acquired
from lango.store.model_calls import ModelCallStore
from lango.store.schema.tables import sessions
from lango.store.sessions.entries import SessionKey
from lango.store.sessions.store import SqlSessionStore
from tests.store.rows import beside, created, key, raw, said, until_waiting

_AT_THE_SERVER = """select count(*) from pg_stat_activity
where datname = current_database() and wait_event_type = 'Lock' and application_name = 'lango'"""
_CANCEL = """select count(pg_cancel_backend(pid)) from pg_stat_activity
where datname = current_database() and state = 'active' and pid <> pg_backend_pid()"""
_WAITING = """select pid from pg_stat_activity
where datname = current_database() and wait_event_type = 'Lock'"""
_IS_THERE = "select count(*) from pg_stat_activity where pid = $1"
_ONE = Prepared(sa.select(sa.literal(1).label("one")))
_LOCKED = Prepared(sa.select(sa.func.pg_advisory_xact_lock(4711).label("locked")))


async def _at_the_server(connection: AsyncConnection) -> int:
    """How many connections wait for a lock now: a transaction sees the view as it was first."""
    await connection.execute(sa.text("select pg_stat_clear_snapshot()"))
    return await connection.scalar(sa.text(_AT_THE_SERVER)) or 0


def _lock(where: SessionKey) -> sa.Select[tuple[int]]:
    is_it = sa.and_(sessions.c.tenant == where.tenant, sessions.c.id == where.session_id)
    return sa.select(sessions.c.pk).where(is_it).with_for_update()


async def test_a_locked_session_holds_few_connections(postgres_url: str, tenant: str) -> None:
    locked, other = key(tenant, "locked"), key(tenant, "other")
    async with SqlSessionStore(postgres_url) as store, beside(postgres_url) as owner:
        ref, free = await created(store, locked), await created(store, other)
        await owner.execute(_lock(locked))
        appends = asyncio.gather(*(store.append(ref, said(f"e{n}")) for n in range(30)))
        renames = asyncio.gather(*(store.rename(locked, f"t{n}") for n in range(30)))
        async with asyncio.timeout(20):
            while await _at_the_server(owner) < PER_SESSION:  # noqa: ASYNC110 - the server's
                await asyncio.sleep(0.05)
        await asyncio.sleep(0.3)
        assert await _at_the_server(owner) == PER_SESSION
        async with asyncio.timeout(20):  # the others need no connection of theirs
            await asyncio.gather(*(store.append(free, said(f"o{n}")) for n in range(20)))
            await asyncio.gather(*(store.rename(other, f"t{n}") for n in range(20)))
        await owner.rollback()
        await asyncio.gather(appends, renames)


async def test_a_session_that_stays_locked_is_a_typed_error(
    postgres_url: str, tenant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(faults, "RETRIES", 1)
    monkeypatch.setattr(engines, "LOCK_TIMEOUT", 1)
    where = key(tenant)
    store = SqlSessionStore(postgres_url, pool_timeout=0.2)
    async with store, raw(postgres_url) as owner:
        ref = await created(store, where)
        await owner.execute("begin")
        await owner.execute("select pk from sessions where pk = $1 for update", ref.pk)
        doing = [store.append(ref, said(f"e{n}")) for n in range(4)]
        async with asyncio.timeout(15):
            ended = await asyncio.gather(*doing, return_exceptions=True)
        assert [type(end) for end in ended] == [StoreBusyError] * 4
        await owner.execute("rollback")
        await store.append(ref, said("after"))


async def test_no_free_connection_is_a_typed_error(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(faults, "RETRIES", 1)
    store = SqlSessionStore(postgres_url, pool_size=1, pool_overflow=1, pool_timeout=0.1)
    async with store:
        async with store.database.snapshot(), store.database.transaction():  # that is all of them
            with pytest.raises(StoreBusyError):
                await store.app_names("t")
            with pytest.raises(StoreBusyError):
                await store.database.read(_ONE)
            with pytest.raises(StoreBusyError):
                await store.check()
        await store.check()


async def test_the_wait_for_a_lease_is_bounded(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(faults, "RETRIES", 1)
    store = SqlSessionStore(postgres_url, pool_size=1, pool_timeout=0.1)
    async with store, raw(postgres_url) as owner:
        await owner.execute("select pg_advisory_lock(4711)")
        slow = asyncio.create_task(store.database.read(_LOCKED))
        await until_waiting(postgres_url)
        with pytest.raises(StoreBusyError):
            await store.database.read(_ONE)
        await owner.execute("select pg_advisory_unlock(4711)")
        await slow


async def test_a_connection_in_use_when_the_store_is_closed_is_closed_after_its_use(
    postgres_url: str,
) -> None:
    store = SqlSessionStore(postgres_url)
    async with raw(postgres_url) as owner:
        await owner.execute("select pg_advisory_lock(4711)")
        slow = asyncio.create_task(store.database.read(_LOCKED))
        await until_waiting(postgres_url)
        waiting = await owner.fetchval(_WAITING)
        await store.close()
        await owner.execute("select pg_advisory_unlock(4711)")
        await slow
        async with asyncio.timeout(10):
            while await owner.fetchval(_IS_THERE, waiting):  # noqa: ASYNC110 - the server's
                await asyncio.sleep(0.05)


async def test_every_connection_in_use_when_the_store_is_closed_is_closed_after_its_use(
    store_url: str,
) -> None:
    used: list[Any] = []
    reached, finish = asyncio.Event(), asyncio.Event()

    async def work(connection: AsyncConnection) -> None:
        used.append((await connection.get_raw_connection()).driver_connection)
        reached.set()
        await finish.wait()

    store = SqlSessionStore(store_url)
    slow = asyncio.create_task(store.database.read(work))
    await reached.wait()
    await store.close()
    finish.set()
    await slow
    (connection,) = used
    with pytest.raises((ValueError, InterfaceError), match=r"closed|no active connection"):
        await connection.execute("select 1")


async def test_the_wait_for_the_writer_of_a_file_is_bounded(
    sqlite_url: str, tenant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(faults, "RETRIES", 1)
    async with SqlSessionStore(sqlite_url, pool_timeout=0.1) as store:
        await created(store, key(tenant))
        async with store.database.begin():
            with pytest.raises(StoreBusyError):
                await store.rename(key(tenant), "new")
        await store.rename(key(tenant), "new")


async def test_sessions_queue_in_order_and_are_forgotten() -> None:
    queues, where, order = SessionQueues(1.0), key("t"), list[int]()

    async def write(number: int) -> None:
        async with queues.turn_of(where):
            order.append(number)
            await asyncio.sleep(0)

    await asyncio.gather(*map(write, range(50)))
    assert order == list(range(50))
    assert not queues._sessions  # pyright: ignore[reportPrivateUsage]


def _call(session_pk: int, name: str) -> ModelCall:
    attempt = ModelAttempt(provider="p", model="m", started=1.0, ended=2.0, outcome="completed")
    return ModelCall(attempt=attempt, number=1, call=name, session_pk=session_pk)


async def test_the_calls_of_others_are_recorded_while_a_session_is_locked(
    postgres_url: str, tenant: str
) -> None:
    locked, other = key(tenant, "locked"), key(tenant, "other")
    async with SqlSessionStore(postgres_url) as store, beside(postgres_url) as owner:
        first, second = await created(store, locked), await created(store, other)
        calls = ModelCallStore(store.database)
        batch = [_call(first.pk or 0, f"{tenant}-1"), _call(second.pk or 0, f"{tenant}-2")]
        await owner.execute(_lock(locked))
        with pytest.raises(StoreBusyError):
            await calls.add(tenant, batch)
        assert len(await calls.of_session(other)) == 1
        await owner.rollback()
        await calls.add(tenant, batch)
        assert len(await calls.of_session(other)) == len(await calls.of_session(locked)) == 1


async def test_cancelled_statements_are_tried_again(postgres_url: str, tenant: str) -> None:
    """Whatever they interrupt: a statement, a commit, the rollback after another one."""
    async with SqlSessionStore(postgres_url) as store, raw(postgres_url) as operator:
        refs = [await created(store, key(tenant, f"s{n}")) for n in range(8)]
        cancelled = 0

        async def write(number: int) -> None:
            for round_ in range(20):
                ref = refs[number % len(refs)]
                await store.append(ref, said(f"e{number}-{round_}"))
                await store.rename(ref.key, f"{number}-{round_}")

        writing = asyncio.gather(*(write(n) for n in range(16)))
        while not writing.done():
            cancelled += await operator.fetchval(_CANCEL)
            await asyncio.sleep(0.03)
        await writing
        assert cancelled
        for ref in refs:
            loaded = await store.load(ref.key, None)
            assert loaded is not None
            assert len(loaded.messages) == 40


async def test_tenants_take_turns_at_a_semaphore() -> None:
    slot, order = FairSemaphore(1), list[str]()

    async def work(tenant: str, number: int) -> None:
        current_tenant.set(tenant)
        await slot.acquire()
        order.append(f"{tenant}{number}")
        await asyncio.sleep(0)
        slot.release()

    await slot.acquire()
    tasks = [asyncio.create_task(work("a", number)) for number in range(5)]
    tasks += [asyncio.create_task(work(tenant, 0)) for tenant in "bc"]
    await asyncio.sleep(0)
    tasks[1].cancel()  # who no longer waits gets nothing
    slot.release()
    await asyncio.wait(tasks)
    assert order == ["a0", "b0", "c0", "a2", "a3", "a4"]
    assert not slot.locked()


async def test_cancelled_tasks_cost_their_tenant_no_turn() -> None:
    slot, order = FairSemaphore(1), list[str]()

    async def work(tenant: str) -> None:
        current_tenant.set(tenant)
        await slot.acquire()
        order.append(tenant)
        slot.release()

    await slot.acquire()
    cancelled = [asyncio.create_task(work("quiet")) for _ in range(5)]
    waiting = [asyncio.create_task(work(tenant)) for tenant in ("quiet", *["noisy"] * 5)]
    await asyncio.sleep(0)
    for task in cancelled:
        task.cancel()
    await asyncio.sleep(0)
    slot.release()
    await asyncio.wait(waiting)
    assert order == ["quiet", *["noisy"] * 5]


async def test_a_slot_that_comes_with_a_cancellation_is_passed_on() -> None:
    slot = FairSemaphore(1)
    await slot.acquire()
    first, second = (asyncio.create_task(slot.acquire()) for _ in range(2))
    await asyncio.sleep(0)
    slot.release()  # to the first
    first.cancel()
    await asyncio.wait([first], timeout=5)
    await asyncio.wait_for(second, 5)
    slot.release()
    assert not slot.locked()


async def test_several_that_wait_for_a_brief_lock_take_it_in_one_pass_of_the_loop() -> None:
    lock, passes = BriefLock(), 0

    async def write() -> None:
        await lock.acquire()
        lock.release()

    await lock.acquire()
    writing = [asyncio.create_task(write()) for _ in range(4)]
    await asyncio.sleep(0)
    lock.release()
    while not all(task.done() for task in writing):
        await asyncio.sleep(0)
        passes += 1
    assert passes <= 2
    assert not lock.locked()


async def test_a_brief_lock_lets_the_loop_run_between_many_that_wait() -> None:
    lock, passes, taken_by_pass = BriefLock(), 0, Counter[int]()

    async def write() -> None:
        await lock.acquire()
        taken_by_pass[passes] += 1
        lock.release()

    await lock.acquire()
    writing = [asyncio.create_task(write()) for _ in range(100)]
    await asyncio.sleep(0)
    lock.release()
    while not all(task.done() for task in writing):
        await asyncio.sleep(0)
        passes += 1
    assert max(taken_by_pass.values()) <= 4
    assert passes <= 30


async def test_tenants_take_turns_at_a_brief_lock_and_one_holds_it() -> None:
    lock, order, holders = BriefLock(), list[str](), 0

    async def work(tenant: str, number: int) -> None:
        nonlocal holders
        current_tenant.set(tenant)
        await lock.acquire()
        order.append(f"{tenant}{number}")
        holders += 1
        await asyncio.sleep(0)  # as a long write does
        assert holders == 1
        holders -= 1
        lock.release()

    await lock.acquire()
    tasks = [asyncio.create_task(work("a", number)) for number in range(40)]
    tasks += [asyncio.create_task(work(tenant, 0)) for tenant in "bc"]
    await asyncio.sleep(0)
    tasks[1].cancel()  # who no longer waits gets nothing
    lock.release()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert [isinstance(result, asyncio.CancelledError) for result in results].count(True) == 1
    assert order == ["a0", "b0", "c0", *(f"a{number}" for number in range(2, 40))]
    assert not lock.locked()


async def test_tasks_that_come_later_take_a_brief_lock_only_once_before_one_that_waits() -> None:
    lock, order = BriefLock(), list[str]()

    async def work(name: str) -> None:
        await lock.acquire()
        order.append(name)
        await asyncio.sleep(0)
        lock.release()

    await lock.acquire()
    tasks = [asyncio.create_task(work("waits"))]
    await asyncio.sleep(0)
    tasks.append(asyncio.create_task(work("later")))  # runs before the one that is woken
    lock.release()
    for _ in range(10):
        await asyncio.sleep(0)
        tasks.append(asyncio.create_task(work("later")))
    await asyncio.gather(*tasks)
    assert order[:2] == ["later", "waits"]


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["a", "b", "c"]),  # the tenant
            st.integers(0, 3),  # passes of the loop before it comes
            st.integers(0, 3),  # passes for which it holds the lock
            st.none() | st.integers(0, 6),  # passes until it is cancelled
        ),
        max_size=40,
    )
)
def test_a_brief_lock_has_one_holder_and_forgets_none(
    tasks: list[tuple[str, int, int, int | None]],
) -> None:
    asyncio.run(_hold_in_turn(tasks))


async def _hold_in_turn(plan: list[tuple[str, int, int, int | None]]) -> None:
    lock, holders = BriefLock(), list[int]()

    async def pass_by(count: int) -> None:
        for _ in range(count):
            await asyncio.sleep(0)

    async def hold(tenant: str, comes_after: int, holds: int) -> None:
        current_tenant.set(tenant)
        await pass_by(comes_after)
        async with acquired(lock, 60.0):
            holders.append(1)
            assert sum(holders) == 1
            try:
                await pass_by(holds)
            finally:
                holders.append(-1)

    async def cancel(task: asyncio.Task[None], after: int) -> None:
        await pass_by(after)
        task.cancel()

    tasks = [asyncio.create_task(hold(*each[:3])) for each in plan]
    ends = [each[-1] for each in plan]
    cancels = [
        asyncio.create_task(cancel(task, after))
        for task, after in zip(tasks, ends, strict=True)
        if after is not None
    ]
    async with asyncio.timeout(30):
        results = await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.gather(*cancels)
    for after, result in zip(ends, results, strict=True):
        assert result is None or (after is not None and isinstance(result, asyncio.CancelledError))
    assert not lock.locked()


async def test_a_wake_that_comes_with_a_cancellation_is_passed_on() -> None:
    lock = BriefLock()
    await lock.acquire()
    tasks = [asyncio.create_task(lock.acquire()) for _ in range(40)]
    await asyncio.sleep(0)
    lock.release()  # wakes the first ones, which are cancelled before they run
    for task in tasks[:-1]:
        task.cancel()
    await asyncio.wait(tasks[:-1], timeout=5)
    await asyncio.wait_for(tasks[-1], 5)
    lock.release()
    assert not lock.locked()


async def test_a_tenant_with_many_operations_does_not_hold_up_another(
    store_url: str, tenant: str
) -> None:
    """Hundreds of one tenant wait for connections; what comes last of another is not the last."""
    ended: list[str] = []
    async with SqlSessionStore(store_url) as store:
        refs = {name: await created(store, key(tenant, name)) for name in ("noisy", "quiet")}

        async def look(name: str, _: int) -> None:
            current_tenant.set(name)
            await store.summary(refs[name].key)
            ended.append(name)

        async def write(name: str, number: int) -> None:
            current_tenant.set(name)
            await store.create(key(tenant, f"{name}{number}"))
            ended.append(name)

        # On SQLite no read waits, and writes wait only while the file is locked.
        for do in (write,) if store.database.is_sqlite else (look, write):
            ended.clear()
            with locked(store_url) if store.database.is_sqlite else nullcontext():
                tasks = [asyncio.create_task(do("noisy", number)) for number in range(150)]
                tasks += [asyncio.create_task(do("quiet", number)) for number in range(3)]
                await asyncio.sleep(0.1)
            await asyncio.gather(*tasks)
            assert max(n for n, name in enumerate(ended) if name == "quiet") < 75


@contextmanager
def locked(url: str) -> Generator[None]:
    """Lock a SQLite file, as the writer of another process does."""
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as other:
        other.execute("begin immediate")
        yield
        other.rollback()
