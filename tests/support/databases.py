"""Temporary databases for tests and measurements: created, migrated, and dropped after a run.

With LANGO_TEST_POOLED they are reached through a PgBouncer in transaction mode: `database` alters
each database so that it has the settings of lango's connections, `transaction` leaves them to each
transaction.
"""

from __future__ import annotations

import os
import tempfile
import uuid
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path
from typing import Final

from sqlalchemy import make_url
from sqlalchemy.ext.asyncio import create_async_engine

from lango.store.db.database import Database
from lango.store.db.engines import pooled_url, session_url, store_url
from lango.store.schema import migrate
from tests.support.pgbouncer import pgbouncer

SERVER_VARIABLE: Final = "LANGO_TEST_POSTGRES_URL"
DEFAULT_SERVER: Final = "postgresql://postgres@127.0.0.1:5432/test"
POOLED_VARIABLE: Final = "LANGO_TEST_POOLED"
_END_OTHERS: Final = """
select pg_terminate_backend(pid, 30000) from pg_stat_activity
where datname = current_database() and pid <> pg_backend_pid() and backend_type = 'client backend'
"""
"""Returns when they have ended: before that, a pooler would lend one with the old settings."""


def server_url() -> str:
    """The PostgreSQL server on which tests may create databases."""
    return os.environ.get(SERVER_VARIABLE, DEFAULT_SERVER)


def direct(url: str) -> str:
    """The URL past the pooler, if it leads through one."""
    parsed = store_url(url)
    session = session_url(parsed)
    if session is None:
        raise ValueError("The URL names a pooler alone.")
    if session is parsed:
        return url
    return session.set(drivername="postgresql").render_as_string(hide_password=False)


def through(url: str, port: int) -> str:
    """The URL of the same database through a pooler at a port of this machine."""
    pooler = store_url(url).set(host="127.0.0.1", port=port)
    pooled = pooled_url(pooler, pooled=True, direct_url=url)
    return pooled.set(drivername="postgresql").render_as_string(hide_password=False)


@asynccontextmanager
async def temporary_postgres(server: str = "") -> AsyncGenerator[str]:
    """The URL of a new, migrated database on the server, dropped at the end."""
    server_direct = direct(server or server_url())
    name = f"lango_{uuid.uuid4().hex}"
    # template0: two runs may copy it at the same time, as no client can connect to it.
    await on_server(server_direct, f'CREATE DATABASE "{name}" TEMPLATE template0')
    try:
        url = make_url(server_direct).set(database=name).render_as_string(hide_password=False)
        await migrate.upgrade(url)
        mode = os.environ.get(POOLED_VARIABLE, "")
        with pgbouncer(server_direct) if mode else nullcontext() as port:
            if port is not None:
                url = through(url, port)
            if mode == "database":
                await give_settings(url)
            yield url
    finally:
        await on_server(server_direct, f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')


async def give_settings(url: str) -> None:
    """Alter a pooled database so that its transactions need no settings of their own."""
    database = Database(url)
    await database.open()
    statements = await database.missing_settings()
    await database.close()
    await on_server(direct(url), *statements, _END_OTHERS)


@asynccontextmanager
async def temporary_sqlite() -> AsyncGenerator[str]:
    """The URL of a new, migrated SQLite file in a folder that is removed at the end."""
    with tempfile.TemporaryDirectory(prefix="lango-") as folder:
        url = f"sqlite:///{Path(folder) / 'lango.db'}"
        await migrate.upgrade(url)
        yield url


async def on_server(server: str, *statements: str) -> None:
    """Run statements outside of transactions."""
    url = make_url(server).set(drivername="postgresql+asyncpg")
    engine = create_async_engine(url, isolation_level="AUTOCOMMIT", connect_args={"timeout": 10})
    try:
        async with engine.connect() as connection:
            for statement in statements:
                await connection.exec_driver_sql(statement)
    finally:
        await engine.dispose()
