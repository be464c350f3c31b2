"""Temporary databases for tests and measurements: created, migrated, and dropped after a run."""

from __future__ import annotations

import os
import tempfile
import uuid
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from sqlalchemy import make_url
from sqlalchemy.ext.asyncio import create_async_engine

from lango.store.schema import migrate

SERVER_VARIABLE: Final = "LANGO_TEST_POSTGRES_URL"
DEFAULT_SERVER: Final = "postgresql://postgres@127.0.0.1:5432/test"


def server_url() -> str:
    """The PostgreSQL server on which tests may create databases."""
    return os.environ.get(SERVER_VARIABLE, DEFAULT_SERVER)


@asynccontextmanager
async def temporary_postgres(server: str = "") -> AsyncGenerator[str]:
    """The URL of a new, migrated database on the server, dropped at the end."""
    given = make_url(server or server_url())
    name = f"lango_{uuid.uuid4().hex}"
    # template0: two runs may copy it at the same time, as no client can connect to it.
    await _on_server(
        given.render_as_string(hide_password=False), f'CREATE DATABASE "{name}" TEMPLATE template0'
    )
    try:
        url = given.set(database=name).render_as_string(hide_password=False)
        await migrate.upgrade(url)
        yield url
    finally:
        drop = f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)'
        await _on_server(given.render_as_string(hide_password=False), drop)


@asynccontextmanager
async def temporary_sqlite() -> AsyncGenerator[str]:
    """The URL of a new, migrated SQLite file in a folder that is removed at the end."""
    with tempfile.TemporaryDirectory(prefix="lango-") as folder:
        url = f"sqlite:///{Path(folder) / 'lango.db'}"
        await migrate.upgrade(url)
        yield url


async def _on_server(server: str, statement: str) -> None:
    url = make_url(server).set(drivername="postgresql+asyncpg")
    engine = create_async_engine(url, isolation_level="AUTOCOMMIT", connect_args={"timeout": 10})
    try:
        async with engine.connect() as connection:
            await connection.exec_driver_sql(statement)
    finally:
        await engine.dispose()
