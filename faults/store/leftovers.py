"""Searches all tables of a database for data of deleted sessions.

The tables and columns come from the database, not from the code: a new table is searched, too.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

_OF_SESSION: Final = ("session_pk", "parent_pk")
"""Columns that hold the primary key of a session."""


async def newest_session(connection: AsyncConnection) -> int:
    """The primary key of the newest session; 0 if there is none."""
    return await connection.scalar(sa.text("select coalesce(max(pk), 0) from sessions")) or 0


async def leftovers(
    connection: AsyncConnection,
    *,
    canaries: Collection[str] = (),
    pks: Collection[int] = (),
    since: int | None = None,
) -> list[str]:
    """The columns that hold a text or the primary key of a deleted session, one line for each.

    `since`: also rows of missing sessions created after this one.
    """
    tables = await connection.run_sync(_tables)
    named = {table.name: table for table in tables}
    found: list[str] = []
    for table in tables:
        for canary in canaries:
            found += await _with_text(connection, table, canary)
        for name in (*_OF_SESSION, "pk") if table.name == "sessions" else _OF_SESSION:
            if name in table.c and pks:
                which = table.c[name].in_(pks)
                found += await _counted(connection, table, which, f"{name} of a deleted session")
            if name in table.c and since is not None:
                there = sa.select(named["sessions"].c.pk)
                alone = (table.c[name] > since) & table.c[name].not_in(there)
                found += await _counted(connection, table, alone, f"{name} of no session")
    return found + await _orphans(connection, named["artifact_chunks"], named["artifacts"])


def _tables(connection: sa.Connection) -> list[sa.Table]:
    found = sa.MetaData()
    found.reflect(connection)
    return found.sorted_tables


async def _with_text(connection: AsyncConnection, table: sa.Table, canary: str) -> list[str]:
    found: list[str] = []
    for column in table.columns:
        is_there = _holds(connection, column, canary)
        found += await _counted(connection, table, is_there, f"{canary!r} in {column.name}")
    return found


def _holds(
    connection: AsyncConnection, column: sa.Column[Any], canary: str
) -> sa.ColumnElement[bool]:
    if connection.dialect.name == "sqlite":  # which compares bytes with bytes, and texts with texts
        return sa.func.instr(sa.cast(column, sa.LargeBinary), canary.encode()) > 0
    if isinstance(column.type, sa.LargeBinary):
        return sa.func.position(sa.literal(canary.encode()).op("in")(column)) > 0
    return sa.func.strpos(sa.cast(column, sa.Text), canary) > 0


async def _counted(
    connection: AsyncConnection, table: sa.Table, which: sa.ColumnElement[bool], what: str
) -> list[str]:
    rows = await connection.scalar(sa.select(sa.func.count()).select_from(table).where(which))
    return [f"{rows} rows of {table.name} with {what}"] if rows else []


async def _orphans(connection: AsyncConnection, chunks: sa.Table, artifacts: sa.Table) -> list[str]:
    """Chunks without their artifact: these may hold neither a text nor a session's key."""
    alone = chunks.c.artifact_pk.not_in(sa.select(artifacts.c.pk))
    return await _counted(connection, chunks, alone, "no artifact")
