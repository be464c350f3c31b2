"""Inserts whose row may exist already, in the dialect of either database."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection


def upsert(connection: AsyncConnection, table: sa.Table) -> Any:
    """An insert with `on_conflict_do_nothing` and `on_conflict_do_update`."""
    dialect = postgresql if connection.dialect.name == "postgresql" else sqlite
    return dialect.insert(table)
