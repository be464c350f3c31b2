"""Getting commits to the disk: one sync of the write-ahead log serves all that wait for it.

With `synchronous=FULL`, SQLite syncs the log inside COMMIT, while all other writers wait, and the
event loop too. Here a commit only writes the log (`synchronous=NORMAL`), and a thread syncs it for
all commits so far. No operation returns before a sync that began after its commit. Copying the log
into the database, which SQLite does inside a COMMIT after each thousand pages, has a thread too.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from threading import Lock
from typing import Final
from weakref import WeakValueDictionary

from lango.errors import StoreUnavailableError
from lango.store.db.sqlite.driver import is_busy

logger = logging.getLogger(__name__)

_SYNC: Final[Callable[[int], None]] = getattr(os, "fdatasync", os.fsync)  # not on every system
_MAX_COMMITS: Final = 128
_MAX_GROWTH: Final = 4 * 1024 * 1024
"""Commits, and bytes that the file grows by, after which a log is copied into its database.

The file keeps its size when SQLite begins the log anew, so that its size alone says nothing.
"""
_WITHOUT_WRITERS: Final = 4
"""One copy in so many is made while no task writes: only then can SQLite restart the log."""
_MAX_SIZE: Final = 64 * 1024 * 1024
"""Bytes of a log that readers keep from restarting, above which we wait for them."""
_MAX_WAIT_FOR_READERS: Final = 1.0


class _File:
    """The log of a file, as all databases of this process sync it."""

    def __init__(self, database: str) -> None:
        self.database = database
        self.path = f"{database}-wal"
        self.has_failed = False
        self._syncing = Lock()
        self._copying = Lock()
        self._max_size = _MAX_SIZE
        self._descriptor: int | None = None

    def check(self) -> None:
        if self.has_failed:
            raise StoreUnavailableError(
                "The disk did not take the database's write-ahead log: "
                "start the process again once the disk works."
            )

    def sync(self) -> None:
        """Sync; one at a time, as the system reports an error of the disk once for a descriptor.

        The descriptor stays open: another's sync, as in a copy, does not take its error from it.
        """
        with self._syncing:
            self.check()
            try:
                _SYNC(self._opened())
            except FileNotFoundError:
                return  # the last connection was closed: SQLite has synced the file itself
            except OSError:
                self.has_failed = True
                logger.exception("The disk did not take the database's write-ahead log")
                raise

    def _opened(self) -> int:
        """The descriptor of the file that has this name now: SQLite deletes one that is empty."""
        now = os.stat(self.path)
        if self._descriptor is not None and os.path.samestat(os.fstat(self._descriptor), now):
            return self._descriptor
        self.close()
        self._descriptor = os.open(self.path, os.O_RDWR)
        return self._descriptor

    @property
    def size(self) -> int:
        with suppress(FileNotFoundError):
            return os.stat(self.path).st_size
        return 0

    @property
    def is_large(self) -> bool:
        return self.size > self._max_size

    def copy(self) -> None:
        """Copy the log into the database, as far as no reader needs it.

        While one reader follows another, SQLite never restarts the log: the copy of one that has
        become large ends with a wait for the readers of the moment. New ones need no log then.
        """
        with self._copying:
            if self.has_failed:
                return
            try:
                with closing(self._connect()) as connection:
                    self._copy(connection)
            except sqlite3.Error as error:
                if is_busy(error):  # the log is copied, and another process restarts it
                    return
                self.has_failed = self.has_failed or _is_failed_sync(error)
                logger.exception("The write-ahead log could not be copied into the database")

    def _connect(self) -> sqlite3.Connection:
        """A connection to the database; an error if its file was deleted, not a new one."""
        address = f"{Path(self.database).as_uri()}?mode=rw"
        return sqlite3.connect(address, uri=True, timeout=_MAX_WAIT_FOR_READERS)

    def _copy(self, connection: sqlite3.Connection) -> None:
        is_large = self.is_large
        mode = "TRUNCATE" if is_large else "PASSIVE"
        is_kept, pages, copied = connection.execute(f"PRAGMA wal_checkpoint({mode})").fetchone()
        if pages == copied:
            _write_nothing(connection)
        if is_large:  # a reader that stays does not delay the writers each time
            self._max_size = self.size * 2 if is_kept else _MAX_SIZE

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def __del__(self) -> None:
        self.close()


def _wake(
    loop: asyncio.AbstractEventLoop, waiting: list[asyncio.Future[None]], error: Exception | None
) -> None:
    """Let the tasks of an event loop continue: one pass of it sooner than `wrap_future` does."""
    for waiter in waiting:
        if waiter.get_loop() is not loop or waiter.done():  # done: its task was cancelled
            continue
        if error is None:
            waiter.set_result(None)
        else:
            waiter.set_exception(error)


def _write_nothing(connection: sqlite3.Connection) -> None:
    """Commit without a change: the first commit after a copy syncs the header of the new log.

    On the event loop's own thread, it would wait for the disk.
    """
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    connection.execute(f"PRAGMA user_version={version}")


def _is_failed_sync(error: BaseException) -> bool:
    """Whether SQLite could not sync a file; SQLAlchemy's error has SQLite's in `orig`."""
    code = getattr(getattr(error, "orig", error), "sqlite_errorcode", None)
    return code == sqlite3.SQLITE_IOERR_FSYNC


_FILES: Final[WeakValueDictionary[str, _File]] = WeakValueDictionary()
_FILES_LOCK: Final = Lock()  # a twin is opened in another thread


class WriteAheadLog:
    """The write-ahead log of a SQLite file, as one database uses it; `use` names the file."""

    def __init__(self) -> None:
        self._file: _File | None = None
        self._thread = ThreadPoolExecutor(1, "lango-sync")
        # Not the event loop's threads: tools may keep them all busy, for minutes.
        self._copier = ThreadPoolExecutor(1, "lango-copy")
        self._waiting: list[asyncio.Future[None]] = []  # for a sync that has not begun
        self._joining = Lock()
        self._is_closed = False
        self._copying: Future[None] | None = None
        self._copies = 0
        self._commits = 0  # since the last copy began
        self._copied_size = 0  # the size of the file then

    def use(self, database: str) -> None:
        """Sync the log of this database."""
        if self._file is None:
            with _FILES_LOCK:
                self._file = _FILES.setdefault(database, _File(database))
            self._copied_size = self._file.size

    def check(self) -> None:
        """Raise if a sync has failed: the system may have dropped pages that it could not write.

        A later sync would report success all the same. A new process reads the log from the disk,
        and SQLite then drops what is not whole.
        """
        if self._file is not None:
            self._file.check()

    @contextmanager
    def watched(self) -> Generator[None]:
        """Inside, a commit that SQLite itself could not sync stops all writes as well.

        Its sync was for the commits of others too.
        """
        try:
            yield
        except Exception as error:
            if self._file is not None and _is_failed_sync(error):
                self._file.has_failed = True
            raise

    def sync(self) -> None:
        """Wait until the disk has all that is committed; in any thread."""
        if self._file is not None:
            self._file.sync()

    async def sync_with_others(self) -> None:
        """Wait for a sync that begins after this call, with all tasks that call this meanwhile."""
        if self._file is None:
            return
        self._commits += 1
        if self._is_closed:  # its thread has ended
            await asyncio.to_thread(self.sync)
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        with self._joining:
            if not self._waiting:
                self._thread.submit(self._sync_next)
            self._waiting.append(waiter)
        await waiter

    def _sync_next(self) -> None:
        """In the thread, after the syncs before it."""
        with self._joining:  # a commit from now on may be too late for this one
            waiting, self._waiting = self._waiting, []
        error: Exception | None = None
        try:
            self.sync()
        except Exception as failed:  # noqa: BLE001 - the tasks that wait for it raise it
            error = failed
        for loop in {waiter.get_loop() for waiter in waiting}:
            with suppress(RuntimeError):  # it is closed
                loop.call_soon_threadsafe(_wake, loop, waiting, error)

    async def copy_if_long(self) -> None:
        """Copy a log that has grown long; the caller lets no other task write meanwhile.

        Most of the time this only starts the copy, in a thread; the writer continues.
        """
        file = self._file
        if file is None or self._is_closed or not self._is_long(file):
            return
        if self._copying is not None and not self._copying.done():
            return
        self._copies += 1
        self._commits, self._copied_size = 0, file.size
        self._copying = self._copier.submit(file.copy)
        if self._copies % _WITHOUT_WRITERS == 0 or file.is_large:
            await self.wait_for_copy()

    async def wait_for_copy(self) -> None:
        """Wait until the copy that is under way has ended, if there is one."""
        if self._copying is not None:
            await asyncio.shield(asyncio.wrap_future(self._copying))

    def _is_long(self, file: _File) -> bool:
        return self._commits >= _MAX_COMMITS or file.size > self._copied_size + _MAX_GROWTH

    def close(self) -> None:
        """End the threads once they have nothing to do; a database opened later may write."""
        self._is_closed = True
        self._thread.shutdown(wait=False)
        self._copier.shutdown(wait=False)
        if self._file is not None and self._file.has_failed:
            with _FILES_LOCK:
                _FILES.pop(self._file.database, None)
