"""The write-ahead log: no write returns before it is on the disk, and one sync serves many."""

import asyncio
import errno
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, suppress
from functools import partial
from itertools import repeat
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock, Mock

import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from lango.errors import StoreUnavailableError
from lango.store.db import retry
from lango.store.db.database import Database
from lango.store.db.sqlite import log as sqlite_log
from lango.store.db.sqlite.driver import ThreadConnection
from lango.store.db.statement import Prepared, Transaction
from lango.store.schema.tables import app_states
from tests.store.db.sqlite.copies import Copies


class Disk:
    """Syncs of the log, which wait until `works` is set, and what was committed when each began."""

    def __init__(self, url: str, patch: pytest.MonkeyPatch) -> None:
        self.works = threading.Event()
        self.works.set()
        self.begun = threading.Event()
        self.error: OSError | None = None
        self.seen: list[int] = []
        self._file = url.removeprefix("sqlite:///")
        patch.setattr(sqlite_log, "_SYNC", self._sync)

    def committed(self) -> int:
        with sqlite3.connect(self._file) as connection:
            (count,) = connection.execute("select count(*) from app_states").fetchone()
        connection.close()
        return count

    def _sync(self, file: int) -> None:
        assert Path(f"/proc/self/fd/{file}").resolve() == Path(f"{self._file}-wal")
        self.seen.append(self.committed())
        self.begun.set()
        assert self.works.wait(20)
        if self.error is not None:
            raise self.error
        os.fsync(file)


@pytest.fixture
def disk(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(sqlite_url, monkeypatch)


@pytest.fixture
def log(database: Database) -> Iterator[sqlite_log.WriteAheadLog]:
    """The log of the database, as another database of this process uses it."""
    log = sqlite_log.WriteAheadLog()
    log.use(str(database.url.database))
    yield log
    log.close()


@pytest.fixture
def retries_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "delays", partial(repeat, 0.0))


def row(key: str) -> dict[str, Any]:
    return {"tenant": "t", "app_name": "a", "key": key, "value": 1}


async def insert(connection: AsyncConnection, key: str) -> None:
    await connection.execute(sa.insert(app_states).values(row(key)))


async def write(database: Database, key: str) -> None:
    await database.write(insert, key)


async def write_long(database: Database, key: str) -> None:
    await database.write(insert, key, is_long=True)


PREPARED = Prepared(sa.insert(app_states))


async def write_prepared(database: Database, key: str) -> None:
    await database.write(PREPARED, **row(key))


async def transact(database: Database, key: str) -> None:
    async def insert_prepared(transaction: Transaction) -> None:
        await transaction.one(PREPARED, **row(key))

    await database.transact(insert_prepared)


Write = Callable[[Database, str], Coroutine[Any, Any, None]]
EVERY_WRITE: list[Write] = [write, write_long, write_prepared, transact]


def refused() -> AbstractContextManager[object]:
    """Inside, a write is refused, as the disk has failed."""
    return pytest.raises(StoreUnavailableError, match="start the process again")


async def fail_to_sync(database: Database, disk: Disk) -> None:
    """Write once to a disk that does not take it, and works again."""
    disk.error = OSError(errno.EIO, "Input/output error")
    with refused():
        await write(database, "failed")
    disk.error = None


@pytest.mark.parametrize("do_write", EVERY_WRITE)
async def test_a_write_returns_once_the_log_is_synced(
    database: Database, disk: Disk, do_write: Write
) -> None:
    disk.works.clear()
    writing = asyncio.create_task(do_write(database, "one"))
    await asyncio.to_thread(disk.begun.wait, 20)
    done, _ = await asyncio.wait([writing], timeout=0.1)
    assert not done
    assert disk.seen == [1]  # committed, and then synced
    disk.works.set()
    await writing


async def test_one_sync_serves_all_writes_that_wait_for_it(database: Database, disk: Disk) -> None:
    disk.works.clear()
    writing = [asyncio.create_task(write(database, str(number))) for number in range(20)]
    for _ in range(2_000):
        if disk.committed() == 20:
            break
        await asyncio.sleep(0.01)
    assert not any(each.done() for each in writing)
    disk.works.set()
    await asyncio.gather(*writing)
    assert len(disk.seen) <= 4
    assert disk.seen[-1] == 20


async def test_a_sync_serves_only_commits_before_it(
    disk: Disk, log: sqlite_log.WriteAheadLog
) -> None:
    """The sync that runs may have missed a later commit: that one waits for the next sync."""
    disk.works.clear()
    first = asyncio.create_task(log.sync_with_others())
    await asyncio.to_thread(disk.begun.wait, 20)
    later = [asyncio.create_task(log.sync_with_others()) for _ in range(5)]
    await asyncio.sleep(0.05)
    assert len(disk.seen) == 1
    disk.works.set()
    await asyncio.gather(first, *later)
    assert len(disk.seen) == 2


async def test_a_cancelled_task_leaves_the_sync_to_the_others(
    disk: Disk, log: sqlite_log.WriteAheadLog
) -> None:
    disk.works.clear()
    first, second = (asyncio.create_task(log.sync_with_others()) for _ in range(2))
    await asyncio.to_thread(disk.begun.wait, 20)
    first.cancel()
    disk.works.set()
    await second
    assert first.cancelled()


@pytest.mark.usefixtures("retries_at_once")
async def test_after_a_failed_sync_nothing_is_written(database: Database, disk: Disk) -> None:
    """The system may have dropped what it could not write, and would report the next as synced."""
    await fail_to_sync(database, disk)
    count = disk.committed()
    with refused():
        await database.check_writes()
    assert (disk.committed(), len(disk.seen)) == (count, 1)
    await database.close()
    await database.open()  # as a new process does
    await write(database, "two")


@pytest.mark.usefixtures("retries_at_once")
@pytest.mark.parametrize("do_write", EVERY_WRITE)
async def test_after_a_failed_sync_no_kind_of_write_is_done(
    database: Database, disk: Disk, do_write: Write
) -> None:
    """Its own sync would succeed, and its frames follow those that the disk does not have."""
    await fail_to_sync(database, disk)
    count = disk.committed()
    with refused():
        await do_write(database, "two")
    assert disk.committed() == count


@pytest.mark.usefixtures("retries_at_once")
async def test_a_long_write_whose_sync_fails_stops_all_writes(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would have synced the short ones before it, too, and the system reports it once."""
    failed = sqlite3.OperationalError("disk I/O error")
    failed.sqlite_errorcode = sqlite3.SQLITE_IOERR_FSYNC
    await write(database, "one")
    with monkeypatch.context() as during:
        during.setattr(ThreadConnection, "commit", AsyncMock(side_effect=failed))
        with refused():
            await write_long(database, "two")
    with refused():
        await write(database, "three")


@pytest.mark.usefixtures("retries_at_once")
async def test_a_failed_sync_stops_the_writes_of_all_databases_of_the_process(
    database: Database, disk: Disk
) -> None:
    """A heartbeat by a twin would keep a worker alive whose turns cannot be written."""
    twin = database.twin()
    await twin.open()
    await fail_to_sync(database, disk)
    with refused():
        await write(twin, "two")
    await twin.close()


@pytest.mark.usefixtures("retries_at_once")
async def test_a_sync_beside_one_that_fails_is_not_successful(
    disk: Disk, log: sqlite_log.WriteAheadLog
) -> None:
    """The system reports an error once: a sync just after it would succeed, without the pages."""
    disk.works.clear()
    disk.error = OSError(errno.EIO, "Input/output error")
    first = asyncio.create_task(asyncio.to_thread(log.sync))
    await asyncio.to_thread(disk.begun.wait, 20)
    second = asyncio.create_task(asyncio.to_thread(log.sync))
    await asyncio.sleep(0.1)
    assert len(disk.seen) == 1
    disk.works.set()
    with pytest.raises(OSError, match="Input/output error"):
        await first
    with refused():
        await second


async def test_writes_that_wait_for_their_sync_return_although_the_log_is_closed(
    disk: Disk, log: sqlite_log.WriteAheadLog
) -> None:
    disk.works.clear()
    first = asyncio.create_task(log.sync_with_others())
    await asyncio.to_thread(disk.begun.wait, 20)
    second = asyncio.create_task(log.sync_with_others())
    await asyncio.sleep(0)
    log.close()
    third = asyncio.create_task(log.sync_with_others())
    await asyncio.sleep(0.1)
    disk.works.set()
    await asyncio.gather(first, second, third)
    assert len(disk.seen) == 3


async def test_a_cancellation_of_all_tasks_harms_no_later_sync(
    disk: Disk, log: sqlite_log.WriteAheadLog
) -> None:
    """As at the end of a program, whose workers then still write that they are gone."""
    disk.works.clear()
    before = asyncio.all_tasks()
    first = asyncio.create_task(log.sync_with_others())
    await asyncio.to_thread(disk.begun.wait, 20)
    second = asyncio.create_task(log.sync_with_others())
    await asyncio.sleep(0)
    for task in asyncio.all_tasks() - before:
        task.cancel()
    await asyncio.gather(first, second, return_exceptions=True)
    disk.works.set()
    await log.sync_with_others()


def log_size(database: Database) -> int:
    return Path(f"{database.url.database}-wal").stat().st_size


def log_header(database: Database) -> bytes:
    return Path(f"{database.url.database}-wal").read_bytes()[:32]


async def test_a_long_log_is_copied_into_the_database(
    database: Database, copies: Copies, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_log, "_MAX_COMMITS", 3)
    sizes: list[int] = []
    for number in range(200):
        await write(database, str(number))
        await copies.end()
        sizes.append(log_size(database))
    assert sizes[20] > sizes[0]
    assert sizes[-1] < 4 * sizes[20]  # SQLite has begun the log anew, many times


async def test_writers_do_not_wait_for_most_copies(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_log, "_MAX_COMMITS", 1)
    begun, works = threading.Event(), threading.Event()

    def copy(_: object) -> None:
        begun.set()
        assert works.wait(20)

    monkeypatch.setattr("lango.store.db.sqlite.log._File.copy", copy)
    await write(database, "one")
    await write(database, "two")
    assert begun.wait(20)
    for number in range(10):  # and no second copy begins beside the first
        await write(database, str(number))
    works.set()


async def test_a_database_that_is_closed_waits_for_the_copy(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_log, "_MAX_COMMITS", 1)
    database, ended = Database(sqlite_url), list[str]()

    def copy(_: object) -> None:
        time.sleep(0.3)
        ended.append("copied")

    monkeypatch.setattr("lango.store.db.sqlite.log._File.copy", copy)
    await write(database, "one")
    await write(database, "two")
    await database.close()
    assert ended == ["copied"]


async def test_a_copy_makes_no_new_file_for_a_database_that_was_deleted(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    await write(database, "one")
    file = str(database.url.database)
    log = sqlite_log.WriteAheadLog()
    log.use(file)
    for name in (file, f"{file}-wal", f"{file}-shm"):
        os.unlink(name)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sqlite_log, "_MAX_COMMITS", 0)
        await log.copy_if_long()
        await log.wait_for_copy()
    log.close()
    with pytest.raises(FileNotFoundError):
        os.stat(file)
    assert "could not be copied" in caplog.text


async def test_a_log_is_copied_although_tools_keep_all_threads_of_the_loop(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_log, "_MAX_COMMITS", 1)
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
    ends = threading.Event()
    tool = asyncio.create_task(asyncio.to_thread(ends.wait, 60))
    try:
        async with asyncio.timeout(30):
            for number in range(3):
                await write(database, str(number))
        assert not tool.done()
    finally:
        ends.set()
        await tool


async def test_no_commit_on_the_event_loop_has_to_begin_the_log_anew(
    database: Database, log: sqlite_log.WriteAheadLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite syncs the header of the new log inside that commit."""
    monkeypatch.setattr(sqlite_log, "_WITHOUT_WRITERS", 1)
    monkeypatch.setattr(sqlite_log, "_MAX_COMMITS", 0)
    await write(database, "one")
    for _ in range(2):
        header = log_header(database)
        await log.copy_if_long()
        assert log_header(database) != header


async def test_a_heartbeat_of_a_twin_does_not_wait_until_a_log_is_copied(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To copy a large log may take longer than a worker may be silent."""
    monkeypatch.setattr(sqlite_log, "_WITHOUT_WRITERS", 1)
    monkeypatch.setattr(sqlite_log, "_MAX_COMMITS", 2)
    twin = database.twin()
    await write(twin, "first")
    copying, goes_on = threading.Event(), threading.Event()

    def copy_on(_: sqlite3.Connection) -> None:
        copying.set()
        goes_on.wait(60)

    monkeypatch.setattr(sqlite_log, "_write_nothing", copy_on)
    await write(database, "1")
    await write(database, "2")
    writing = asyncio.create_task(write(database, "3"))
    await asyncio.to_thread(copying.wait, 20)
    try:
        async with asyncio.timeout(20):
            await write(twin, "beat")
        assert not writing.done()
    finally:
        goes_on.set()
    await writing
    await twin.close()


class Readers:
    """Readers of which the next begins before the last one ends."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._reading: list[sqlite3.Connection] = []

    def follow(self) -> None:
        reader = sqlite3.connect(self._file, check_same_thread=False, isolation_level=None)
        reader.execute("begin")
        reader.execute("select count(*) from app_states").fetchone()
        self._reading.append(reader)
        if len(self._reading) > 1:
            self._reading.pop(0).close()

    def close(self) -> None:
        for reader in self._reading:
            reader.close()


async def test_a_log_that_readers_never_leave_does_not_grow_without_end(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_log, "_WITHOUT_WRITERS", 1)
    monkeypatch.setattr(sqlite_log, "_MAX_COMMITS", 4)
    monkeypatch.setattr(sqlite_log, "_MAX_SIZE", 200_000)
    monkeypatch.setattr(sqlite_log, "_MAX_WAIT_FOR_READERS", 60.0)
    database = Database(sqlite_url)
    await database.open()
    readers = Readers(str(database.url.database))

    async def read_on() -> None:
        while True:
            readers.follow()
            await asyncio.sleep(0.001)

    reading = asyncio.create_task(read_on())
    sizes: list[int] = []
    try:
        for number in range(150):
            await write(database, str(number))
            sizes.append(log_size(database))
    finally:
        reading.cancel()
        readers.close()
    await database.close()
    assert max(sizes) < 400_000


async def test_a_reader_that_stays_is_not_waited_for_each_time(
    sqlite_url: str, copies: Copies, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_log, "_MAX_COMMITS", 1)
    monkeypatch.setattr(sqlite_log, "_MAX_SIZE", 20_000)
    monkeypatch.setattr(sqlite_log, "_MAX_WAIT_FOR_READERS", 0.01)
    database = Database(sqlite_url)
    await write(database, "first")
    readers = Readers(str(database.url.database))
    readers.follow()
    executed: list[str] = []
    usual = sqlite3.connect

    def traced(*arguments: Any, **options: Any) -> sqlite3.Connection:
        connection = usual(*arguments, **options)
        connection.set_trace_callback(executed.append)
        return connection

    with monkeypatch.context() as during:
        during.setattr(sqlite3, "connect", traced)
        for number in range(40):
            await write(database, str(number))
            await copies.end()
    readers.close()
    await write(database, "last")
    await database.close()
    waits = sum("TRUNCATE" in statement for statement in executed)
    assert 0 < waits < 8
    assert sum("PASSIVE" in statement for statement in executed) > 20


async def test_a_log_that_cannot_be_copied_keeps_growing_and_nothing_is_lost(
    database: Database,
    copies: Copies,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(sqlite_log, "_MAX_COMMITS", 2)
    disk_full = sqlite3.OperationalError("database or disk is full")
    disk_full.sqlite_errorcode = sqlite3.SQLITE_FULL
    await write(database, "first")
    with monkeypatch.context() as during:
        during.setattr(sqlite3, "connect", Mock(side_effect=disk_full))
        for number in range(5):
            await write(database, str(number))
        await copies.end()
    assert "could not be copied" in caplog.text
    await write(database, "last")
    async with database.snapshot() as connection:
        count = sa.select(sa.func.count()).select_from(app_states)
        assert await connection.scalar(count) == 7


@pytest.mark.usefixtures("retries_at_once")
async def test_a_sync_that_fails_while_the_log_is_copied_stops_all_writes(
    database: Database, copies: Copies, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_log, "_MAX_COMMITS", 1)
    failed = sqlite3.OperationalError("disk I/O error")
    failed.sqlite_errorcode = sqlite3.SQLITE_IOERR_FSYNC
    await write(database, "one")
    with monkeypatch.context() as during:
        during.setattr(sqlite3, "connect", Mock(side_effect=failed))
        with suppress(StoreUnavailableError):  # if the copy that it starts fails before its sync
            await write(database, "two")
        await copies.end()
    with refused():
        await write(database, "three")


async def test_a_large_transaction_is_copied_soon(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_log, "_MAX_GROWTH", 50_000)
    monkeypatch.setattr(sqlite_log, "_WITHOUT_WRITERS", 1)
    for number in range(10):
        values = {"tenant": "t", "app_name": "a", "key": str(number), "value": "x" * 60_000}
        await database.write(
            lambda connection, row=values: connection.execute(sa.insert(app_states).values(row))
        )
    assert log_size(database) < 400_000


async def test_a_database_in_memory_has_no_log_to_sync(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    syncs: list[int] = []
    monkeypatch.setattr(sqlite_log, "_SYNC", syncs.append)
    database = Database("sqlite://")
    await asyncio.gather(*(write(database, str(number)) for number in range(3)))
    await database.close()
    assert syncs == []


async def test_short_and_long_writes_at_once_do_not_wait_for_each_other_in_a_circle(
    sqlite_url: str,
) -> None:
    database = Database(sqlite_url, pool_timeout=60.0)

    keys = list(map(str, range(80)))
    short = [database.write(insert, key) for key in keys[:60]]
    long = [database.write(insert, key, is_long=True) for key in keys[60:]]
    async with asyncio.timeout(50):
        await asyncio.gather(*short, *long, *(database.check_writes() for _ in range(5)))
    async with database.snapshot() as connection:
        count = sa.select(sa.func.count()).select_from(app_states)
        assert await connection.scalar(count) == 80
    await database.close()


async def test_readers_that_keep_all_connections_delay_no_write(sqlite_url: str) -> None:
    """A long write that waits for one of them would keep all others from writing."""
    database = Database(sqlite_url, pool_size=1, pool_overflow=1, pool_timeout=60.0)
    ends = asyncio.Event()

    async def read(connection: AsyncConnection) -> None:
        await connection.scalar(sa.select(sa.func.count()).select_from(app_states))
        await ends.wait()

    reading = [asyncio.create_task(database.read(read)) for _ in range(5)]
    await asyncio.sleep(0.1)
    async with asyncio.timeout(30):
        await asyncio.gather(
            *(do_write(database, str(number)) for number, do_write in enumerate(EVERY_WRITE * 2))
        )
    assert not any(each.done() for each in reading)
    ends.set()
    await asyncio.gather(*reading)
    await database.close()
