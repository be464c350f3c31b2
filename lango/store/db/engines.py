"""From one URL to an engine: `postgresql://…` through asyncpg, `sqlite:///…` through aiosqlite."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from importlib import import_module
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.engine import ExceptionContext
from sqlalchemy.exc import ArgumentError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.pool import ConnectionPoolEntry
from sqlalchemy.util import greenlet_spawn

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
from lango.store.db.sqlite.engine import create_sqlite_engine
from lango.store.db.sqlite.log import WriteAheadLog

_DRIVERS: Final = {
    "postgresql": "postgresql+asyncpg",
    "postgres": "postgresql+asyncpg",
    "sqlite": "sqlite+aiosqlite",
}

NAME: Final = "lango"
"""The name of our connections in `pg_stat_activity`, unless the URL sets another."""

CONNECT_TIMEOUT: Final = 10.0
STATEMENT_TIMEOUT: Final = 30.0
"""Seconds that a statement may take; on SQLite, that it may wait for the writer."""
IDLE_TIMEOUT: Final = 3
"""Seconds a transaction may wait for its own process before it is rolled back.

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
    statement_timeout: float = STATEMENT_TIMEOUT,
    log: WriteAheadLog | None = None,
) -> AsyncEngine:
    """An engine for the store; errors never carry the parameters, which are users' texts.

    With `log`, the commits to a SQLite file do not wait for the disk: the caller syncs it.
    """
    if is_sqlite(url):
        pool = {"pool_size": pool_size, "max_overflow": 0, "pool_timeout": pool_timeout}
        return create_sqlite_engine(url, schema, statement_timeout, pool, log)
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


async def close_engine(engine: AsyncEngine) -> None:
    """Close every connection: an idle one now, one in use when it is returned.

    `AsyncEngine.dispose` leaves those in use to the garbage collector, and puts a new pool in place
    of the old one. SQLAlchemy keeps the listeners of both under the old one's address: once another
    pool has that address, a garbage collection while it gets its listeners breaks their registry.
    """
    pool = engine.sync_engine.pool
    event.listen(pool, "checkin", _close_returned)
    await greenlet_spawn(pool.dispose)


def _close_returned(_: object, entry: ConnectionPoolEntry) -> None:
    entry.close()


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
