"""From one URL to an engine: `postgresql://…` through asyncpg, `sqlite:///…` through aiosqlite."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.engine import ExceptionContext
from sqlalchemy.exc import ArgumentError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.pool import StaticPool

from lango.core.extras import install
from lango.core.values import json_text
from lango.errors import UnsupportedUrlError
from lango.store.db.liveness import (
    SERVER_SETTINGS,
    Keepalive,
    connection_class,
    idle_connections,
    is_in_transaction,
)
from lango.store.db.pooler import SEARCH_PATH, LocalSettings, pooled_class
from lango.store.db.retry import is_cancelled, is_out_of_step, is_read_only
from lango.store.db.sqlite_driver import connector

_DRIVERS: Final = {
    "postgresql": "postgresql+asyncpg",
    "postgres": "postgresql+asyncpg",
    "sqlite": "sqlite+aiosqlite",
}
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

NAME: Final = "lango"
"""The name of our connections in `pg_stat_activity`, unless the URL sets another."""

CONNECT_TIMEOUT: Final = 10.0
IDLE_TIMEOUT: Final = 3
"""Seconds a transaction may wait for its own process before PostgreSQL ends it.

Short, as a frozen process can have several of them, each waiting for the one before.
"""
POOL_TIMEOUT: Final = 10.0
"""Seconds to wait for one of the pool's connections before the operation is retried."""
LOCK_TIMEOUT: Final = 5
"""Seconds to wait for a row's lock before the statement fails and is retried."""

_ON_THE_WAY: Final = 5.0
_TARGET: Final = "target_session_attrs"
_POOLED: Final = "pooled"
_DIRECT: Final = "direct_url"
_YES_NO: Final = {"true": True, "false": False}

READ_ONLY: Final = {"lango_read_only": True}
"""Execution options of a transaction that only reads: on SQLite it takes no write lock."""


def store_url(url: str) -> sa.URL:
    """The SQLAlchemy URL for a store's URL, which may name the driver that we use anyway."""
    try:
        parsed = sa.make_url(url)
    except (ArgumentError, ValueError) as problem:
        raise UnsupportedUrlError(
            f"Not a database URL (not shown: it may hold a password). {UnsupportedUrlError.__doc__}"
        ) from problem
    scheme = parsed.drivername
    driver = _DRIVERS.get(scheme) or (scheme if scheme in _DRIVERS.values() else None)
    if driver is None:
        raise UnsupportedUrlError(
            f"{scheme}:// is not supported. {UnsupportedUrlError.__doc__} "
            "For example: postgresql://user@host/database or sqlite:///lango.db"
        )
    return parsed.set(drivername=driver)


def quoted(schema: str) -> str:
    """A schema's name as PostgreSQL reads it, whatever is in it."""
    return '"' + schema.replace('"', '""') + '"'


def is_sqlite(url: sa.URL) -> bool:
    """Whether the URL names a SQLite database."""
    return url.get_backend_name() == "sqlite"


def is_in_memory(url: sa.URL) -> bool:
    """Whether the database lives in this process alone."""
    return is_sqlite(url) and url.database in (None, "", ":memory:")


def has_several_hosts(url: sa.URL) -> bool:
    """Whether the URL names several servers, as libpq does: `?host=one,two`."""
    return "," in f"{url.host or ''}{url.query.get('host', '')}"


def is_pooled(url: sa.URL) -> bool:
    """Whether the URL leads to a pooler in transaction mode: `?pooled=true`."""
    pooled = str(url.query.get(_POOLED, "false"))
    if pooled not in _YES_NO:
        raise UnsupportedUrlError("`pooled` in a database URL is true or false.")
    return _YES_NO[pooled]


def pooled_url(url: sa.URL, *, pooled: bool, direct_url: str | None) -> sa.URL:
    """The URL with these of its parameters set; UnsupportedUrlError if they make no sense."""
    if direct_url is not None:
        url = url.update_query_dict({_DIRECT: direct_url})
    if pooled:
        url = url.update_query_dict({_POOLED: "true"})
    if is_pooled(url) and is_sqlite(url):
        raise UnsupportedUrlError("SQLite has no pooler: leave `pooled` out, or use PostgreSQL.")
    if _DIRECT in url.query and not is_pooled(url):
        raise UnsupportedUrlError(
            "`direct_url` goes with `pooled: true`. If the store's URL leads to the database "
            "itself, leave `direct_url` out; if it leads to PgBouncer, set `pooled: true`."
        )
    return url


def session_url(url: sa.URL) -> sa.URL | None:
    """The URL that keeps one server connection for as long as a client stays; None without one."""
    if not is_pooled(url):
        return url
    direct = url.query.get(_DIRECT)
    return store_url(str(direct)) if direct else None


def create_engine(
    url: sa.URL,
    *,
    schema: str | None = None,
    pool_size: int = 10,
    pool_timeout: float = POOL_TIMEOUT,
    statement_timeout: float = 30.0,
) -> AsyncEngine:
    """An engine for the store; errors never carry the parameters, which are users' texts."""
    if is_sqlite(url):
        pool = {"pool_size": pool_size, "max_overflow": 0, "pool_timeout": pool_timeout}
        return _sqlite_engine(url, schema, statement_timeout, pool)
    settings = {"application_name": str(url.query.get("application_name", NAME))}
    of_sessions = _timeouts(statement_timeout) | ({SEARCH_PATH: quoted(schema)} if schema else {})
    local = LocalSettings(of_sessions) if is_pooled(url) else None
    if local is None:
        settings |= {
            name: str(url.query.get(name, usual)) for name, usual in SERVER_SETTINGS.items()
        }
        settings |= of_sessions
    patience = _patience(statement_timeout)
    engine = create_async_engine(
        url.set(query={}),
        hide_parameters=True,
        json_serializer=json_text,
        pool_size=pool_size,
        max_overflow=0,
        pool_timeout=pool_timeout,
        async_creator=_postgres_connector(url, settings, patience, local),
    )
    event.listen(engine.sync_engine, "handle_error", _drop_if_read_only)
    idle_connections(engine)
    if local is not None:
        local.listen(engine)
    return engine


def _drop_if_read_only(context: ExceptionContext) -> None:
    """Drop a connection to a server that has become read-only, and with it all in the pool.

    The same for one that did not answer: SQLAlchemy would drop it alone, after a graceful close.
    One that may be out of step is dropped alone: SQLAlchemy would reuse it, as it does not check
    whether the cancelled statement was the begin or the rollback of a transaction.
    """
    error, connection = context.original_exception, context.connection
    if is_read_only(error):
        context.is_disconnect = True
    elif connection is None or connection.closed or connection.invalidated:
        return
    elif isinstance(error, TimeoutError):
        context.is_disconnect = context.invalidate_pool_on_disconnect = True
        _driver(connection).terminate()
    elif is_out_of_step(error) or is_cancelled(error) or _is_stuck(context, connection):
        context.is_disconnect, context.invalidate_pool_on_disconnect = True, False
        _driver(connection).terminate()


def _is_stuck(context: ExceptionContext, connection: sa.Connection) -> bool:
    """Whether a commit or a rollback failed, and left the transaction open."""
    return context.statement is None and is_in_transaction(_driver(connection))


def _driver(connection: sa.Connection) -> Any:
    """asyncpg's own connection, which publishes no types."""
    return connection.connection.driver_connection


def _timeouts(statement_timeout: float) -> dict[str, str]:
    """Timeouts in milliseconds; work that may take any time, a migration or a copy, has none."""
    if not statement_timeout:
        return {"statement_timeout": "0"}
    return {
        "statement_timeout": str(int(statement_timeout * 1000)),
        # A process that is frozen in a transaction must not keep its rows locked for ever.
        "idle_in_transaction_session_timeout": str(IDLE_TIMEOUT * 1000),
        "lock_timeout": str(LOCK_TIMEOUT * 1000),
    }


def _patience(statement_timeout: float) -> float | None:
    """Seconds to wait for an answer: by then, a live server has cancelled the statement."""
    return statement_timeout + _ON_THE_WAY if statement_timeout else None


def _postgres_connector(
    url: sa.URL, settings: dict[str, str], patience: float | None, local: LocalSettings | None
) -> Callable[[], Awaitable[Any]]:
    """Connects as asyncpg reads the URL: with libpq's options, such as `?sslmode=require`."""
    try:
        asyncpg: Any = import_module("asyncpg")
    except ImportError as error:
        raise UnsupportedUrlError(f"PostgreSQL needs a driver: {install('postgres')}") from error
    kind = connection_class(asyncpg, Keepalive.of(url.query))
    server = url.set(drivername="postgresql").difference_update_query(
        (*Keepalive.names(), _POOLED, _DIRECT)
    )
    dsn = server.render_as_string(hide_password=False)
    # Of several servers only the primary is of use: the others refuse every write.
    target = "read-write" if has_several_hosts(url) and _TARGET not in url.query else None

    async def connect(**options: Any) -> Any:
        return await asyncpg.connect(
            dsn,
            server_settings=settings,
            timeout=CONNECT_TIMEOUT,
            command_timeout=patience,
            target_session_attrs=target,
            **options,
        )

    async def connect_pooled(local: LocalSettings) -> Any:
        raw = await connect(connection_class=pooled_class(kind), statement_cache_size=0)
        try:
            await local.read(raw)
        except BaseException:
            raw.terminate()
            raise
        return raw

    if local is not None:
        return partial(connect_pooled, local)
    return partial(connect, connection_class=kind)


def _sqlite_engine(
    url: sa.URL, schema: str | None, busy_timeout: float, pool: dict[str, Any]
) -> AsyncEngine:
    if schema:
        raise UnsupportedUrlError("SQLite has no schemas: leave `schema` out, or use PostgreSQL.")
    if is_in_memory(url):
        pool = {"poolclass": StaticPool}  # one connection: each would be a database of its own
    else:
        refuse_network_file_system(Path(str(url.database)))
    _keep_values_from_logs()
    engine = create_async_engine(
        url,
        hide_parameters=True,
        json_serializer=json_text,
        async_creator=connector(url, busy_timeout),
        **pool,
    )
    event.listen(engine.sync_engine, "connect", _prepare_sqlite)
    event.listen(engine.sync_engine, "begin", _begin_sqlite)
    event.listen(engine.sync_engine, "handle_error", _is_not_harmed)
    return engine


def _keep_values_from_logs() -> None:
    """Keep aiosqlite from logging statements with their values if only the root is at DEBUG.

    To log them, set the level of the logger `aiosqlite` itself.
    """
    driver = logging.getLogger("aiosqlite")
    if driver.level == logging.NOTSET:
        driver.setLevel(logging.INFO)


def _prepare_sqlite(connection: Any, _record: object) -> None:
    """WAL: readers and a writer do not wait for each other. We begin transactions ourselves."""
    connection.isolation_level = None
    cursor = connection.cursor()
    cursor.execute("PRAGMA journal_mode=WAL")
    cursor.execute("PRAGMA synchronous=FULL")
    cursor.close()


def _begin_sqlite(connection: sa.Connection) -> None:
    """Take the write lock at once: one taken later fails with "database is locked" under load."""
    read_only = connection.get_execution_options().get("lango_read_only", False)
    connection.exec_driver_sql("BEGIN" if read_only else "BEGIN IMMEDIATE")


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
        inside = target == point or target.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):
            best, kind = point, fs_type
    if kind in _NETWORK_FILE_SYSTEMS:
        raise UnsupportedUrlError(
            f"{path} lies on a network file system ({kind}), where SQLite loses writes. "
            "Put the file on a local disk, or use PostgreSQL."
        )
