"""Times: the database's clock, and stored times as ADK's floats."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection


def now(connection: AsyncConnection) -> Any:
    """The database's time; for SQLite this process's, as its own has whole seconds only."""
    return datetime.now(UTC) if connection.dialect.name == "sqlite" else sa.func.now()


def seconds(time: datetime) -> float:
    """A stored time as ADK's float; SQLite returns times without their zone."""
    return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()


def seconds_or_none(time: datetime | None) -> float | None:
    """The same; None for None."""
    return None if time is None else seconds(time)


class _Ago(sa.TypeDecorator[Any]):
    """A time, given by how long ago it was on the database's clock."""

    impl = sa.Interval
    cache_ok = True

    def bind_expression(self, bindparam: sa.BindParameter[Any]) -> sa.ColumnElement[Any]:
        return sa.func.now() - sa.cast(bindparam, sa.Interval())


class _AgoHere(sa.TypeDecorator[Any]):
    """The same on the clock of this process, for SQLite."""

    impl = sa.DateTime
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: sa.Dialect) -> datetime:  # noqa: ARG002
        return datetime.now(UTC) - value


_AGO: Final = (
    sa.DateTime(timezone=True).with_variant(_Ago(), "postgresql").with_variant(_AgoHere(), "sqlite")
)


def ago(name: str) -> sa.BindParameter[Any]:
    """A bind parameter for a timedelta, which is subtracted from the database's time."""
    return sa.bindparam(name, type_=_AGO)


NOW: Final = sa.bindparam("now", timedelta(), type_=_AGO)
"""The time at which a prepared statement runs; on PostgreSQL, at which its transaction began."""
