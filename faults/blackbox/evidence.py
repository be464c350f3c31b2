"""The evidence of a run, read without the product: plain SQL, and logs of other processes."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Any

Row = dict[str, Any]
_asyncpg: Any = import_module("asyncpg")  # it has no types


def _rows() -> list[Row]:
    return []


@dataclass
class Evidence:
    """All tables of the database, and the logs of the clients, the tools and the model server."""

    tables: dict[str, list[Row]] = field(default_factory=dict[str, list[Row]])
    client: list[Row] = field(default_factory=_rows)
    tools: list[Row] = field(default_factory=_rows)
    model: list[Row] = field(default_factory=_rows)

    def logged(self, kind: str) -> list[Row]:
        """The lines of one kind in the clients' log."""
        return [line for line in self.client if line["kind"] == kind]


def moment(value: Any) -> float | None:
    """A database's time value as seconds since 1970."""
    if value is None:
        return None
    when = value if isinstance(value, datetime) else datetime.fromisoformat(str(value))
    return (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()


def parsed(value: Any) -> Any:
    """Parse JSON that a database returns as text."""
    return json.loads(value) if isinstance(value, str) else value


def fields_of(value: Any) -> Row:
    """The fields of a JSON object; empty for any other value."""
    found = parsed(value)
    return dict(found) if isinstance(found, dict) else {}  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]


async def connected(url: str) -> Any:
    """A connection to a PostgreSQL database."""
    return await _asyncpg.connect(url)


async def tables_of(url: str) -> dict[str, list[Row]]:
    """All rows of every table of a database, in one snapshot."""
    if url.startswith("sqlite"):
        return _sqlite(Path(url.partition("///")[2]))
    connection = await connected(url)
    try:
        async with connection.transaction(isolation="repeatable_read", readonly=True):
            names = await connection.fetch(
                "select tablename from pg_tables where schemaname = 'public' order by 1"
            )
            return {
                name: [dict(row) for row in await connection.fetch(f'select * from "{name}"')]  # noqa: S608
                for (name,) in names
            }
    finally:
        await connection.close()


def _sqlite(path: Path) -> dict[str, list[Row]]:
    with closing(sqlite3.connect(path)) as connection:
        connection.row_factory = sqlite3.Row
        names = [
            row[0]
            for row in connection.execute(
                "select name from sqlite_master where type = 'table' and name not like 'sqlite_%'"
            )
        ]
        return {
            name: [dict(row) for row in connection.execute(f'select * from "{name}"')]  # noqa: S608
            for name in names
        }
