"""Which faults pass by themselves: each provoked on the real thing."""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterator
from typing import Any
from uuid import uuid4

import asyncpg
import pytest
import sqlalchemy as sa
from sqlalchemy import make_url
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from faults.database.proxy import Proxy, ReplyFault
from lango.core.backoff import delays
from lango.errors import Fenced, StoreUnavailableError
from lango.store.db import retry as faults
from lango.store.db.engines import create_engine, store_url
from lango.store.db.retry import RETRIES, is_duplicate, is_transient, retrying
from tests.store.rows import beside, raw
from tests.support.databases import direct

Provoke = Callable[[str], Awaitable[BaseException]]


async def error_or_none(doing: Awaitable[Any]) -> BaseException | None:
    """What it raises, if anything."""
    try:
        await doing
    except Exception as error:  # noqa: BLE001 - whatever the driver makes of it
        return error
    return None


async def error_of(doing: Awaitable[Any]) -> BaseException:
    """What it raises."""
    error = await error_or_none(doing)
    assert error is not None
    return error


async def _end(url: str, pid: int) -> None:
    async with raw(url) as other:
        assert await other.fetchval("select pg_terminate_backend($1, 5000)", pid)


async def ended_while_idle(url: str) -> BaseException:
    async with raw(url) as connection:
        await _end(url, await connection.fetchval("select pg_backend_pid()"))
        return await error_of(connection.fetchval("select 1"))


async def ended_in_mid_statement(url: str) -> BaseException:
    async with raw(url) as connection:
        pid = await connection.fetchval("select pg_backend_pid()")
        sleeping = asyncio.create_task(error_of(connection.fetchval("select pg_sleep(60)")))
        await _until_running(url, pid)
        await _end(url, pid)
        return await sleeping


async def _until_running(url: str, pid: int) -> None:
    active = "select state = 'active' from pg_stat_activity where pid = $1"
    async with raw(url) as other:
        while not await other.fetchval(active, pid):  # noqa: ASYNC110 - no event to await
            await asyncio.sleep(0.01)


async def ended_under_sqlalchemy(url: str) -> BaseException:
    engine = create_engine(store_url(url))
    try:
        async with engine.connect() as connection:
            pid = await connection.scalar(sa.text("select pg_backend_pid()"))
            await _end(url, pid or 0)
            return await error_of(connection.execute(sa.text("select 1")))
    finally:
        await engine.dispose()


async def deadlock(url: str) -> BaseException:
    """Two that take the same two locks, each the other's first."""
    async with raw(url) as one, raw(url) as two:
        for connection in (one, two):
            await connection.execute("set deadlock_timeout = '20ms'")
        lock = "select pg_advisory_lock($1)"
        await one.execute(lock, 1)
        await two.execute(lock, 2)
        crossing = [error_or_none(one.execute(lock, 2)), error_or_none(two.execute(lock, 1))]
        done, waiting = await asyncio.wait(
            map(asyncio.ensure_future, crossing), return_when=asyncio.FIRST_COMPLETED
        )
        [error] = [task.result() for task in done]
    await asyncio.gather(*waiting)  # the other one, whose connection is closed by now
    assert error is not None
    return error


async def serialization_failure(url: str) -> BaseException:
    async with raw(url) as one, raw(url) as two:
        await one.execute("insert into app_states values ($1, 'a', 'k')", str(uuid4()))
        write = "update app_states set value = '1' where app_name = 'a'"
        await one.execute("begin isolation level repeatable read")
        await one.fetch("select * from app_states")
        await two.execute(write)
        return await error_of(one.execute(write))


async def too_slow(url: str) -> BaseException:
    async with raw(url) as connection:
        return await error_of(
            connection.execute("set statement_timeout = '1ms'; select pg_sleep(1)")
        )


async def lock_not_available(url: str) -> BaseException:
    async with raw(url) as one, raw(url) as two:
        await one.execute("begin; lock table app_states")
        return await error_of(two.execute("begin; lock table app_states nowait"))


async def read_only(url: str) -> BaseException:
    """A connection that was opened on a replica, or on a server that was demoted since."""
    async with raw(url) as connection:
        await connection.execute("set default_transaction_read_only = on")
        return await error_of(connection.execute("delete from app_states where tenant = 'none'"))


async def left_in_a_failed_transaction(url: str) -> BaseException:
    async with raw(url) as connection:
        await connection.execute("begin")
        await error_of(connection.execute("select 1 / 0"))
        return await error_of(connection.execute("select 1"))


async def no_free_connection(url: str) -> BaseException:
    engine = create_engine(store_url(url), pool_size=1, pool_timeout=0.01)
    try:
        async with engine.connect():
            return await error_of(_connect(engine.connect()))
    finally:
        await engine.dispose()


async def no_primary(url: str) -> BaseException:
    """Several servers, none of which accepts writes."""
    several = make_url(url).set(
        host=None,
        port=None,
        query={"host": "127.0.0.1,127.0.0.1", "port": f"1,{make_url(url).port or 5432}"},
    )
    setting = {"target_session_attrs": "standby"}
    engine = create_engine(several.update_query_dict(setting).set(drivername="postgresql+asyncpg"))
    try:
        return await error_of(_connect(engine.connect()))
    finally:
        await engine.dispose()


async def stood_still(url: str) -> BaseException:
    async with raw(url) as connection:
        await connection.execute("set idle_in_transaction_session_timeout = '1ms'; begin")
        pid = connection.get_server_pid()
        async with raw(url) as other:
            there = "select count(*) from pg_stat_activity where pid = $1"
            while await other.fetchval(there, pid):  # noqa: ASYNC110 - no event to await
                await asyncio.sleep(0.01)
        return await error_of(connection.fetchval("select 1"))


async def no_answer(url: str) -> BaseException:
    """A connection that stays open, and over which the reply to a commit never comes."""
    never = ReplyFault(3600.0, arrives=False)
    async with Proxy(url, lambda _: never) as proxy:
        engine = create_engine(store_url(proxy.url), statement_timeout=1.0)
        try:
            async with engine.connect() as connection:
                await connection.scalar(sa.text("select 1"))
                return await error_of(connection.commit())
        finally:
            await engine.dispose()


async def no_listener(_url: str) -> BaseException:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    engine = create_engine(store_url(f"postgresql://postgres@127.0.0.1:{port}/test"))
    try:
        return await error_of(_connect(engine.connect()))
    finally:
        await engine.dispose()


async def _connect(connecting: Any) -> None:
    async with connecting:
        pass


async def _select_one(engine: AsyncEngine) -> None:
    async with engine.begin() as connection:
        await connection.scalar(sa.text("select 1"))


@pytest.mark.parametrize(
    "provoke",
    [
        ended_while_idle,
        ended_in_mid_statement,
        ended_under_sqlalchemy,
        deadlock,
        serialization_failure,
        lock_not_available,
        too_slow,
        stood_still,
        read_only,
        left_in_a_failed_transaction,
        no_free_connection,
        no_primary,
        no_answer,
        no_listener,
    ],
)
async def test_faults_that_pass(provoke: Provoke, postgres_url: str) -> None:
    error = await provoke(postgres_url)
    assert is_transient(error), repr(error)
    assert not is_duplicate(error)


def test_a_farewell_that_crosses_a_statement_passes() -> None:
    """A race no test can arrange: seen when a backend was ended just as it was spoken to."""
    crossed = asyncpg.InternalClientError(
        "cannot switch to state 11; another operation (2) is in progress"
    )
    assert is_transient(crossed)


@pytest.mark.parametrize(
    "statement",
    [
        "select wrong syntax here",
        "select * from no_such_table",
        "select 1 / 0",
        "insert into app_states (tenant) values ('t')",
    ],
)
async def test_faults_that_stay(statement: str, postgres_url: str) -> None:
    async with raw(postgres_url) as connection:
        error = await error_of(connection.execute(statement))
    assert not is_transient(error), repr(error)
    assert not is_duplicate(error)


async def test_a_database_that_is_not_there_does_not_pass(postgres_url: str) -> None:
    missing = store_url(direct(postgres_url)).set(database="there_is_no_such_database")
    engine = create_engine(missing)
    try:
        error = await error_of(_connect(engine.connect()))
    finally:
        await engine.dispose()
    assert not is_transient(error), repr(error)


INSERT = sa.text("insert into app_states (tenant, app_name, key) values (:tenant, 'a', 'k')")


async def _twice(connection: AsyncConnection, tenant: str) -> None:
    for _ in range(2):
        await connection.execute(INSERT, {"tenant": tenant})


async def test_a_duplicate_is_known(store_url: str, tenant: str) -> None:
    with pytest.raises(IntegrityError) as error:
        async with beside(store_url) as connection:
            await _twice(connection, tenant)
    assert is_duplicate(error.value)
    assert not is_transient(error.value)


async def test_a_duplicate_on_a_bare_connection_is_known(postgres_url: str, tenant: str) -> None:
    insert = "insert into app_states (tenant, app_name, key) values ($1, 'a', 'k')"
    async with raw(postgres_url) as connection:
        await connection.execute(insert, tenant)
        error = await error_of(connection.execute(insert, tenant))
    assert is_duplicate(error)
    assert not is_transient(error)


async def test_another_refusal_is_no_duplicate(store_url: str, tenant: str) -> None:
    null = sa.text("insert into app_states (tenant, app_name) values (:tenant, 'a')")
    with pytest.raises(IntegrityError) as error:
        async with beside(store_url) as connection:
            await connection.execute(null, {"tenant": tenant})
    assert not is_duplicate(error.value)
    assert not is_transient(error.value)


async def test_a_locked_sqlite_file_passes(sqlite_url: str) -> None:
    impatient = create_engine(store_url(sqlite_url), statement_timeout=0.01)
    try:
        async with beside(sqlite_url) as writer:
            await writer.scalar(sa.text("select 1"))
            error = await error_of(_select_one(impatient))
    finally:
        await impatient.dispose()
    assert is_transient(error), repr(error)


async def test_a_wrong_sqlite_statement_does_not_pass(sqlite_url: str) -> None:
    async with beside(sqlite_url) as connection:
        wrong = await error_of(connection.execute(sa.text("select wrong syntax here")))
        unbindable = await error_of(
            connection.execute(sa.text("select :value"), {"value": object()})
        )
    assert not is_transient(wrong), repr(wrong)
    assert not is_transient(unbindable), repr(unbindable)


@pytest.mark.parametrize("error", [ValueError("no"), KeyError("k"), AssertionError(), Fenced()])
def test_our_own_mistakes_do_not_pass(error: BaseException) -> None:
    assert not is_transient(error)


# --- trying again ----------------------------------------------------------------------------


@pytest.fixture
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many tries, without the waits."""

    def none(tries: int) -> Iterator[float]:
        return (0.0 for _ in delays(tries))

    monkeypatch.setattr(faults, "delays", none)


class Failing:
    """Fails so many times, then succeeds."""

    def __init__(self, times: int, error: BaseException) -> None:
        self.left, self.error, self.calls = times, error, 0

    async def __call__(self) -> str:
        self.calls += 1
        if self.left:
            self.left -= 1
            raise self.error
        return "done"


@pytest.mark.usefixtures("hurry")
@pytest.mark.parametrize("times", [0, 1, RETRIES - 1])
async def test_it_is_tried_until_it_succeeds(times: int) -> None:
    operation = Failing(times, ConnectionResetError())
    assert await retrying(operation) == "done"
    assert operation.calls == times + 1


@pytest.mark.usefixtures("hurry")
async def test_in_the_end_it_is_given_up() -> None:
    cause = ConnectionResetError("gone")
    operation = Failing(1_000, cause)
    with pytest.raises(StoreUnavailableError, match="ConnectionResetError") as error:
        await retrying(operation)
    assert RETRIES <= operation.calls <= RETRIES + 1
    assert error.value.__cause__ is cause
    assert error.value.retryable


@pytest.mark.parametrize(
    "error", [ValueError("no"), Fenced(), asyncio.CancelledError(), KeyboardInterrupt()]
)
async def test_what_does_not_pass_is_raised_at_once(error: BaseException) -> None:
    operation = Failing(1_000, error)
    with pytest.raises(type(error)) as raised:
        await retrying(operation)
    assert raised.value is error
    assert operation.calls == 1


async def test_no_task_repeats_for_ever_what_is_too_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(faults, "RETRY_FOR", 0.0)  # each try has taken as long as it may
    faults.outlast_outages()
    operation = Failing(1_000, asyncpg.QueryCanceledError("canceling statement"))
    with pytest.raises(StoreUnavailableError, match="QueryCanceledError"):
        await retrying(operation)
    assert operation.calls == 1
