"""Waits for connections and for locked sessions: bounded, and not at the cost of other sessions."""

import asyncio

import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from lango.core.context.model_calls import ModelAttempt, ModelCall
from lango.core.tenants import current_tenant
from lango.errors import StoreBusyError
from lango.store.db import engines
from lango.store.db import retry as faults
from lango.store.db.statement import Prepared
from lango.store.db.waiting import PER_SESSION, FairSemaphore, SessionQueues
from lango.store.model_calls import ModelCallStore
from lango.store.schema.tables import sessions
from lango.store.sessions.entries import SessionKey
from lango.store.sessions.store import SqlSessionStore
from tests.store.rows import beside, created, key, raw, said

_AT_THE_SERVER = """select count(*) from pg_stat_activity
where datname = current_database() and wait_event_type = 'Lock' and application_name = 'lango'"""
_CANCEL = """select count(pg_cancel_backend(pid)) from pg_stat_activity
where datname = current_database() and state = 'active' and pid <> pg_backend_pid()"""
_SLEEP = Prepared(sa.select(sa.func.pg_sleep(1).label("slept")))


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
        async with asyncio.timeout(5):  # the others need no connection of theirs
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
                await store.database.read(_SLEEP)
            with pytest.raises(StoreBusyError):
                await store.check()
        await store.check()


async def test_the_wait_for_a_lease_is_bounded(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(faults, "RETRIES", 1)
    async with SqlSessionStore(postgres_url, pool_size=1, pool_timeout=0.1) as store:
        slow = asyncio.create_task(store.database.read(_SLEEP))
        await asyncio.sleep(0.2)
        with pytest.raises(StoreBusyError):
            await store.database.read(_SLEEP)
        await slow


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

        for do in (look, write):
            ended.clear()
            tasks = [asyncio.create_task(do("noisy", number)) for number in range(150)]
            tasks += [asyncio.create_task(do("quiet", number)) for number in range(3)]
            await asyncio.gather(*tasks)
            assert max(n for n, name in enumerate(ended) if name == "quiet") < 75
