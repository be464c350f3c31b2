"""Turns of many sessions, for operators: the newest first, by keyset pagination."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from lango.core.ids import check_id
from lango.core.turns.states import TurnState
from lango.store.db.database import Database
from lango.store.schema.tables import sessions, turns
from lango.store.sessions.entries import SessionKey
from lango.store.sessions.listing import Page, check_limit
from lango.store.turns.rows import Turn, turn_of

_ID: Final = "turn_{milliseconds:012x}"
_CLOCKS_DIFFER: Final = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class TurnFilter:
    """Filters for a tenant's turns; None: any."""

    session_pk: int | None = None
    app: str | None = None
    user: str | None = None
    state: TurnState | None = None
    since: datetime | None = None  # accepted at this time or later; aware
    until: datetime | None = None  # accepted before


@dataclass(frozen=True, slots=True)
class ListedTurn:
    """A turn, and its session's public id."""

    turn: Turn
    session: str


async def list_turns(
    database: Database,
    tenant: str,
    filters: TurnFilter,
    *,
    cursor: str | None = None,
    limit: int = 50,
) -> Page[ListedTurn]:
    """A page of turns; ids sort by time, so the index of ids gives the order."""
    check_limit(limit)
    statement = (
        sa.select(
            turns,
            *(sessions.c.tenant, sessions.c.app_name, sessions.c.user_id),
            *(sessions.c.id.label("session_id"), sessions.c.public_id),
        )
        .join(sessions, sessions.c.pk == turns.c.session_pk)
        .where(sessions.c.tenant == tenant, *_conditions(filters))
        .order_by(turns.c.id.desc())
        .limit(limit + 1)
    )
    if cursor is not None:
        statement = statement.where(turns.c.id < check_id("cursor", cursor))

    async def once(connection: AsyncConnection) -> list[ListedTurn]:
        return [
            ListedTurn(
                turn_of(row, SessionKey(row.tenant, row.app_name, row.user_id, row.session_id)),
                row.public_id,
            )
            for row in await connection.execute(statement)
        ]

    listed = await database.read(once)
    page = listed[:limit]
    return Page(page, page[-1].turn.id if len(listed) > limit else None)


def _conditions(filters: TurnFilter) -> Iterator[sa.ColumnElement[bool]]:
    columns = {
        turns.c.session_pk: filters.session_pk,
        turns.c.app: filters.app,
        sessions.c.user_id: filters.user,
        turns.c.state: filters.state,
    }
    yield from (column == value for column, value in columns.items() if value is not None)
    if filters.since is not None:
        since = filters.since.astimezone(UTC)
        yield turns.c.created >= since
        # Ends the scan of the ids, whose times are from the clocks of other processes.
        yield turns.c.id >= _id_at(since - _CLOCKS_DIFFER)
    if filters.until is not None:
        yield turns.c.created < filters.until.astimezone(UTC)


def _id_at(moment: datetime) -> str:
    """The prefix of ids that were created at a moment."""
    return _ID.format(milliseconds=max(int(moment.timestamp() * 1000), 0))
