"""Sums over the records of model calls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from lango.core.insight import BY, MAX_ROWS, UsageBy, UsageReport, UsageRow, UsageSum
from lango.store.db.database import Database
from lango.store.schema.tables import model_calls
from lango.store.turns.usage import CUT_OFF, TOKEN_SUMS

_SUMS: dict[str, sa.ColumnElement[Any]] = {
    "calls": sa.func.count(model_calls.c.call_id.distinct()),
    "attempts": sa.func.count(),
    "turns": sa.func.count(sa.func.nullif(model_calls.c.turn, "").distinct()),
    **TOKEN_SUMS,
    "cost": sa.func.sum(model_calls.c.price),
    "cut_off": sa.func.count(sa.case((model_calls.c.outcome == CUT_OFF, 1))),
}


@dataclass(frozen=True, slots=True)
class UsageFilter:
    """Which calls are summed up; None: of all users, of all apps."""

    tenant: str
    since: datetime  # aware
    until: datetime  # not included
    user: str | None = None
    app: str | None = None


async def read_usage(
    database: Database, usage_filter: UsageFilter, by: Sequence[UsageBy] = ()
) -> UsageReport:
    """The sums grouped by `by`, or else by day, and the total."""
    grouping = tuple(sorted(set(by or ("day",)), key=BY.index))

    async def once(connection: AsyncConnection) -> UsageReport:
        conditions = _conditions(usage_filter)
        total = (await connection.execute(_sums().where(*conditions))).one()
        groups = _groups(connection, grouping)
        grouped = _sums(*groups).where(*conditions).group_by(*(group.element for group in groups))
        ordered = grouped.order_by(*_order(groups)).limit(MAX_ROWS + 1)
        rows = (await connection.execute(ordered)).all()
        return UsageReport(
            since=usage_filter.since,
            until=usage_filter.until,
            by=grouping,
            total=UsageSum(**_figures(total)),
            rows=tuple(_row(row, grouping) for row in rows[:MAX_ROWS]),
            more=len(rows) > MAX_ROWS,
        )

    return await database.read(once)


def _conditions(usage_filter: UsageFilter) -> list[sa.ColumnElement[bool]]:
    conditions = [
        model_calls.c.tenant == usage_filter.tenant,
        model_calls.c.started >= usage_filter.since.astimezone(UTC),
        model_calls.c.started < usage_filter.until.astimezone(UTC),
    ]
    if usage_filter.user is not None:
        conditions.append(model_calls.c.user_id == usage_filter.user)
    if usage_filter.app is not None:
        conditions.append(model_calls.c.app_name == usage_filter.app)
    return conditions


def _sums(*groups: sa.Label[Any]) -> sa.Select[*tuple[Any, ...]]:
    return sa.select(*groups, *(column.label(name) for name, column in _SUMS.items()))


def _groups(connection: AsyncConnection, groups: Sequence[UsageBy]) -> list[sa.Label[Any]]:
    columns: dict[UsageBy, sa.ColumnElement[Any]] = {
        "day": _day(connection),
        "app": model_calls.c.app_name,
        "agent": model_calls.c.agent,
        "model": model_calls.c.model,
        "user": model_calls.c.user_id,
    }
    return [columns[name].label(f"by_{name}") for name in groups]


def _day(connection: AsyncConnection) -> sa.ColumnElement[Any]:
    """The day in UTC, as text: SQLite stores times as text in UTC."""
    if connection.dialect.name == "sqlite":
        return sa.func.substr(sa.cast(model_calls.c.started, sa.Text), 1, 10)
    in_utc = sa.func.timezone(sa.literal_column("'UTC'"), model_calls.c.started)
    return sa.func.to_char(in_utc, sa.literal_column("'YYYY-MM-DD'"))


def _order(groups: Sequence[sa.Label[Any]]) -> list[sa.ColumnElement[Any]]:
    """The newest day first, then the highest cost, then the most tokens, then by name."""
    days = [group.element.desc() for group in groups if group.name == "by_day"]
    names = [group.element for group in groups if group.name != "by_day"]
    tokens = _SUMS["input"] + _SUMS["output"]
    return [*days, sa.func.coalesce(_SUMS["cost"], 0.0).desc(), tokens.desc(), *names]


def _figures(row: sa.Row[Any]) -> dict[str, Any]:
    """The sums of a row: PostgreSQL's are Decimals."""
    figures = {name: int(getattr(row, name)) for name in _SUMS if name != "cost"}
    return figures | {"cost": row.cost}


def _row(row: sa.Row[Any], by: Sequence[UsageBy]) -> UsageRow:
    groups: dict[str, Any] = {name: getattr(row, f"by_{name}") for name in by}
    if "day" in groups:
        groups["day"] = date.fromisoformat(groups["day"])
    return UsageRow(**_figures(row), **groups)
