"""Times: the database's clock, and stored times as ADK's floats."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection


def now(connection: AsyncConnection) -> Any:
    """The database's clock; SQLite's own knows whole seconds only."""
    return datetime.now(UTC) if connection.dialect.name == "sqlite" else sa.func.now()


def seconds(time: datetime) -> float:
    """A stored time as ADK's float; SQLite gives back times without their zone."""
    return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()
