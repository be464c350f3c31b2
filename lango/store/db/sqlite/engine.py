"""The engine of a SQLite file, or of a database in memory."""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
from functools import partial
from pathlib import Path
from typing import Any, Final, cast

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.engine import ExceptionContext
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.pool import NullPool, StaticPool

from lango.core.values import json_text
from lango.errors import UnsupportedUrlError
from lango.store.db.sqlite.driver import (
    Connect,
    InlineConnection,
    Open,
    ThreadConnection,
    in_threads,
    inline,
    opener,
)
from lango.store.db.sqlite.log import WriteAheadLog

_NETWORK_FILE_SYSTEMS: Final = {
    "nfs",
    "nfs4",
    "cifs",
    "smb3",
    "smbfs",
    "9p",
    "afs",
    "fuse.sshfs",
    "ceph",
    "glusterfs",
}


def is_in_memory(url: sa.URL) -> bool:
    """Whether a SQLite database lives in this process alone."""
    return url.database in (None, "", ":memory:")


def create_sqlite_engine(
    url: sa.URL,
    schema: str | None,
    busy_timeout: float,
    pool: dict[str, Any],
    log: WriteAheadLog | None,
) -> AsyncEngine:
    """An engine whose statements run in threads, but for those of a database in memory.

    A transaction waits `busy_timeout` seconds for those of other processes. With `log`, a commit
    does not wait for the disk: the caller has to sync it, and to copy it.
    """
    if schema:
        raise UnsupportedUrlError("SQLite has no schemas: leave `schema` out, or use PostgreSQL.")
    _keep_values_from_logs()
    if is_in_memory(url):
        pool = {"poolclass": StaticPool}  # one connection: each would be a database of its own
        return _engine(url, inline(opener(url, busy_timeout, _use_log), busy_timeout), pool)
    refuse_network_file_system(Path(str(url.database)))
    prepare = _use_log if log is None else partial(_leave_log_to_caller, log)
    return _engine(url, in_threads(opener(url, busy_timeout, prepare)), pool)


def create_inline_engine(url: sa.URL, connect: Connect) -> AsyncEngine:
    """An engine for a file whose statements run on the event loop's own thread; it has no pool."""
    return _engine(url, connect, {"poolclass": NullPool})


def inline_opener(url: sa.URL, log: WriteAheadLog) -> Open:
    """Opens a file for statements on the event loop's own thread, where none may wait.

    A commit does not wait for the disk: the caller has to sync `log`, and to copy it.
    """
    return opener(url, 0.0, partial(_leave_log_to_caller, log))


def _engine(url: sa.URL, connect: Connect, pool: dict[str, Any]) -> AsyncEngine:
    engine = create_async_engine(
        url, hide_parameters=True, json_serializer=json_text, async_creator=connect, **pool
    )
    event.listen(engine.sync_engine, "begin", _begin)
    event.listen(engine.sync_engine, "handle_error", _is_not_harmed)
    return engine


def _keep_values_from_logs() -> None:
    """Keep aiosqlite from logging statements with their values if only the root is at DEBUG.

    To log them, set the level of the logger `aiosqlite` itself.
    """
    driver = logging.getLogger("aiosqlite")
    if driver.level == logging.NOTSET:
        driver.setLevel(logging.INFO)


def _driver(connection: sa.Connection) -> InlineConnection | ThreadConnection:
    return cast("InlineConnection | ThreadConnection", connection.connection.driver_connection)


def _use_log(connection: sqlite3.Connection) -> None:
    """Write to a log: readers and a writer do not wait for each other."""
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")


def _leave_log_to_caller(log: WriteAheadLog, connection: sqlite3.Connection) -> None:
    """The same, but the caller syncs the log, and copies it into the database.

    A file system without shared memory has no such log.
    """
    if connection.execute("PRAGMA journal_mode=WAL").fetchone() != ("wal",):
        connection.execute("PRAGMA synchronous=FULL")
        return
    log.use(connection.execute("PRAGMA database_list").fetchone()[2])
    connection.execute("PRAGMA synchronous=NORMAL")
    connection.execute("PRAGMA wal_autocheckpoint=0")


def _begin(connection: sa.Connection) -> None:
    """Take the write lock at once: one taken later fails with "database is locked" under load."""
    read_only = connection.get_execution_options().get("lango_read_only", False)
    _driver(connection).begin_with = "BEGIN" if read_only else "BEGIN IMMEDIATE"


def _is_not_harmed(context: ExceptionContext) -> None:
    """Keep a connection when the task that waited for its thread is cancelled.

    SQLAlchemy would close it. That ends a database in memory; and one in a file keeps the locks
    of a closed connection until its last statement is released: by a traceback, say, that waits
    for the garbage collector. So it is kept, and rolled back as after any error.
    """
    if isinstance(context.original_exception, asyncio.CancelledError):
        context.is_disconnect = False


def refuse_network_file_system(path: Path, mounts: Path = Path("/proc/self/mounts")) -> None:
    """Refuse a network file system: SQLite's locks do not hold there."""
    if not mounts.exists():
        return
    target = os.path.realpath(path)
    best, kind = "", ""
    for line in mounts.read_text(encoding="utf-8", errors="replace").splitlines():
        _, point, fs_type, *_ = line.split(" ")
        point = point.replace("\\040", " ")
        is_inside = target == point or target.startswith(point.rstrip("/") + "/")
        if is_inside and len(point) >= len(best):
            best, kind = point, fs_type
    if kind in _NETWORK_FILE_SYSTEMS:
        raise UnsupportedUrlError(
            f"{path} lies on a network file system ({kind}), where SQLite loses writes. "
            "Put the file on a local disk, or use PostgreSQL."
        )
