"""Wake-ups in a process and between processes."""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import NoReturn

import sqlalchemy as sa

from faults.turns.workspace import Workspace, turn_process
from lango.store.db.database import Database
from lango.store.sessions.store import SqlSessionStore
from lango.store.turns.log import LoggedEvent
from lango.turns.bus.database import DatabaseBus
from lango.turns.bus.protocol import BusMessage, OnMessage
from lango.turns.wake import STOP, WORK, LogSubscription, WakeUps
from tests.store.rows import beside

FOREVER = 30.0


async def _joined(wakes: WakeUps) -> None:
    """Wait until it listens to other processes: it then wakes all local subscriptions."""
    with wakes.subscribe(WORK) as subscription:
        assert await subscription.wait(FOREVER)


async def test_a_wake_up_in_the_process_needs_no_database(sqlite_url: str) -> None:
    async with WakeUps(DatabaseBus(Database(sqlite_url))) as wakes:
        with (
            wakes.subscribe_to_log("turn_a") as subscription,
            wakes.subscribe_to_log("turn_b") as other,
        ):
            wakes.notify("turn_a")
            assert await subscription.wait(FOREVER)
            assert not await subscription.wait(0.01)
            assert not await other.wait(0.01)


def _events(*numbers: int) -> list[LoggedEvent]:
    return [LoggedEvent(number, "message.delta", {}, 1, 0.0) for number in numbers]


async def test_a_wake_up_that_comes_as_the_time_is_over_is_not_lost() -> None:
    """Text that is only streamed is in no log: a reader that polls instead does not find it."""
    subscription = LogSubscription()
    waiting = asyncio.create_task(subscription.wait(0.01))
    await asyncio.sleep(0)
    time.sleep(0.05)  # noqa: ASYNC251 - the timer and the wake-up are due in the same pass
    asyncio.get_running_loop().call_soon(subscription.deliver, _events(3))
    assert await waiting
    assert subscription.take(2) == _events(3)


def test_a_reader_takes_what_it_is_handed() -> None:
    subscription = LogSubscription()
    subscription.deliver(_events(3))
    subscription.deliver(_events(4, 5))
    assert subscription.take(3) == _events(4, 5)
    assert subscription.take(5) == []  # once


def test_a_reader_that_has_read_what_it_is_handed_does_not_look_again() -> None:
    subscription = LogSubscription()
    subscription.deliver(_events(3))
    assert subscription.take(3) == []


def test_a_reader_that_may_have_missed_something_looks_at_the_log() -> None:
    subscription = LogSubscription()
    subscription.deliver(_events(4))
    assert subscription.take(2) is None
    subscription.deliver(_events(3))  # and another process has written 4
    subscription.deliver(_events(5))
    assert subscription.take(2) is None
    subscription.deliver(_events(3))
    subscription.wake()  # a notice from another process
    assert subscription.take(2) is None


def test_what_a_slow_reader_does_not_take_is_not_kept() -> None:
    subscription = LogSubscription()
    for number in range(3, 1_003):
        subscription.deliver(_events(number))
    assert subscription.take(2) is None


@asynccontextmanager
async def two_processes(url: str) -> AsyncGenerator[tuple[WakeUps, WakeUps]]:
    """Two that hear each other, as if each were alone in a process."""
    async with (
        SqlSessionStore(url) as ours,
        SqlSessionStore(url) as theirs,
        WakeUps(DatabaseBus(ours.database)) as process,
        WakeUps(DatabaseBus(theirs.database)) as there,
    ):
        await asyncio.gather(_joined(process), _joined(there))
        yield process, there


async def test_wake_ups_reach_other_processes(postgres_url: str) -> None:
    async with two_processes(postgres_url) as (process, there):
        with process.subscribe(STOP) as subscription:
            there.notify(STOP)
            assert await subscription.wait(FOREVER)


async def test_a_log_notifies_other_processes_while_they_read(postgres_url: str) -> None:
    async with two_processes(postgres_url) as (process, there):
        with process.subscribe_to_log("turn_a") as subscription:
            async with asyncio.timeout(FOREVER):
                while not await subscription.wait(0.05):  # until `there` knows of the reader
                    there.notify("turn_a")


class StubbornBus:
    """Swallows the first cancellation, as redis-py does while it connects."""

    reaches_others = carries_data = is_connected = True

    async def listen(self, on_message: OnMessage, on_connect: Callable[[], None]) -> NoReturn:
        del on_message
        on_connect()
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        await asyncio.Event().wait()
        raise AssertionError("The event is never set.")

    async def publish(self, messages: Sequence[BusMessage]) -> None: ...

    def subscribe(self, topic: str) -> None: ...

    def unsubscribe(self, topic: str) -> None: ...


async def test_a_client_that_swallows_a_cancellation_does_not_keep_a_process_from_ending() -> None:
    async with asyncio.timeout(FOREVER), WakeUps(StubbornBus()) as wakes:
        await _joined(wakes)


async def test_a_lost_connection_comes_back(postgres_url: str) -> None:
    listening = "datname = current_database() and (query like 'LISTEN%' or query = 'select 1')"
    cut = f"select pg_terminate_backend(pid) from pg_stat_activity where {listening}"  # noqa: S608
    async with two_processes(postgres_url) as (process, there):
        with process.subscribe(WORK) as subscription:
            async with beside(postgres_url) as connection:
                await connection.execute(sa.text(cut))
            assert await subscription.wait(
                FOREVER
            )  # back, and told to look: it may have missed something
        with process.subscribe(STOP) as subscription:
            async with asyncio.timeout(FOREVER):
                while not await subscription.wait(0.1):
                    there.notify(STOP)


async def test_turns_run_on_a_database_in_memory(tmp_path: Path) -> None:
    async with turn_process(Workspace("sqlite://", "app", tmp_path)) as process, process.worker():
        assert (await process.turns.wait(await process.say("hi"))).state == "completed"
