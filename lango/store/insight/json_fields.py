"""Fields of JSON columns, read without the rest of the column, which may be large."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

ARGUMENTS_ROOM: Final = 500
"""Characters shown of a tool's arguments."""


def json_fields(
    connection: AsyncConnection, column: sa.Column[Any], names: Sequence[str]
) -> list[sa.Label[Any]]:
    """Fields of a JSON column as text, labelled by their names."""
    if connection.dialect.name == "sqlite":
        return [sa.func.json_extract(column, f"$.{name}").label(name) for name in names]
    field = column.op("->>", return_type=sa.Text())
    return [field(sa.literal_column(f"'{name}'")).label(name) for name in names]


def beginning(column: sa.Column[Any]) -> sa.Function[Any]:
    """The beginning of a JSON column's text."""
    return sa.func.substr(sa.cast(column, sa.Text), 1, ARGUMENTS_ROOM)
