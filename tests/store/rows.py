"""Short words for the store's tests: keys, entries, and SQL beside the store."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from importlib import import_module
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from lango.store.db import engines
from lango.store.sessions.entries import Entry, SessionKey, SessionRef
from lango.store.sessions.store import SqlSessionStore
from tests.support.databases import direct

NO_TIMEOUTS = {"lock_timeout": "0", "idle_in_transaction_session_timeout": "0"}
"""A pooled database has some for all its connections."""
WAITING = """select count(*) from pg_stat_activity
where datname = current_database() and wait_event_type = 'Lock'"""
PATIENCE = 60.0
"""Seconds after which a test that waits has failed: a limit, not a measurement."""


def key(tenant: str, session_id: str = "s", *, user: str = "u", app: str = "a") -> SessionKey:
    return SessionKey(tenant, app, user, session_id)


async def created(store: SqlSessionStore, where: SessionKey) -> SessionRef:
    return (await store.create(where)).ref


def said(event_id: str, text: str = "hi", **fields: Any) -> Entry:
    """One user message of ten tokens."""
    given: dict[str, Any] = {
        "event_id": event_id,
        "invocation_id": "turn-1",
        "author": "user",
        "role": "user",
        "content": text,
        "tool_calls": None,
        "event": None,
        "changes": None,
        "tokens": 10,
        "timestamp": 1_760_000_000.0,
        "counts": True,
    }
    return Entry(**{**given, **fields})


async def texts(store: SqlSessionStore, where: SessionKey) -> list[str]:
    """What a whole load finds."""
    loaded = await store.load(where, None)
    assert loaded is not None
    return [row.content for row in loaded.messages]


@asynccontextmanager
async def beside(url: str, schema: str | None = None) -> AsyncGenerator[AsyncConnection]:
    """A transaction on a second connection to the same database.

    Unlike a transaction of the product, it may be idle and hold its locks for as long as it takes.
    """
    engine = _engine_beside(url, schema)
    try:
        async with engine.begin() as connection:
            if connection.dialect.name == "postgresql":
                for name, value in NO_TIMEOUTS.items():
                    await connection.exec_driver_sql(f"set local {name} = {value}")
            yield connection
    finally:
        await engine.dispose()


def _engine_beside(url: str, schema: str | None) -> AsyncEngine:
    parsed = engines.store_url(direct(url))
    if engines.is_sqlite(parsed):
        return engines.create_engine(parsed, schema=schema)
    return engines.create_engine(parsed, schema=schema, statement_timeout=0)


async def execute(url: str, *statements: str | sa.Executable, schema: str | None = None) -> None:
    """Run statements in a transaction of their own."""
    async with beside(url, schema) as connection:
        for statement in statements:
            await connection.execute(
                sa.text(statement) if isinstance(statement, str) else statement
            )


async def until_waiting(url: str) -> None:
    """Wait until a statement of this database waits for a lock."""
    async with raw(url) as connection, asyncio.timeout(PATIENCE):
        while not await connection.fetchval(WAITING):  # noqa: ASYNC110 - of the server
            await asyncio.sleep(0.01)


@asynccontextmanager
async def raw(url: str) -> AsyncGenerator[Any]:
    """A bare asyncpg connection, past any pooler, closed if it still can be."""
    asyncpg: Any = import_module("asyncpg")  # it publishes no types
    connection = await asyncpg.connect(direct(url), server_settings=NO_TIMEOUTS)
    try:
        yield connection
    finally:
        connection.terminate()
