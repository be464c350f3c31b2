"""Turns that failed, the last one first, with their causes."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from lango.core.causes import Cause
from lango.core.fleet import MAX_SHOWN, FailedTurn
from lango.core.times import moment
from lango.core.turns.states import RETRY_OF
from lango.store.db.clock import seconds
from lango.store.db.database import Database
from lango.store.db.statement import Row
from lango.store.schema.tables import IS_FAILED, sessions, turns


async def read_failures(
    database: Database,
    since: datetime,
    *,
    tenant: str | None = None,
    app: str | None = None,
    limit: int = MAX_SHOWN,
) -> list[FailedTurn]:
    """The last turns that failed since an aware time; None: of all tenants, of all apps."""
    retries = turns.alias("retries")
    is_again = sa.and_(
        retries.c.session_pk == turns.c.session_pk,
        retries.c.idempotency_key == RETRY_OF + turns.c.id,
    )
    conditions: list[sa.ColumnElement[bool]] = [IS_FAILED, turns.c.ended >= since.astimezone(UTC)]
    if tenant is not None:
        conditions.append(turns.c.tenant == tenant)
    if app is not None:
        conditions.append(turns.c.app == app)
    statement = (
        sa.select(turns, sessions.c.public_id, sessions.c.user_id, retries.c.id.label("retry"))
        .join(sessions, sessions.c.pk == turns.c.session_pk)
        .outerjoin(retries, is_again)
        .where(*conditions)
        .order_by(turns.c.ended.desc(), turns.c.id.desc())
        .limit(limit)
    )

    async def once(connection: AsyncConnection) -> list[FailedTurn]:
        return [_failed(row) for row in await connection.execute(statement)]

    return await database.read(once)


def _failed(row: Row) -> FailedTurn:
    error: dict[str, Any] = row.error or {}
    error_id = str(error.get("error_id", ""))
    causes: dict[str, dict[str, str]] = row.causes or {}
    cause = causes.get(error_id)
    return FailedTurn(
        turn=row.id,
        session=row.public_id,
        tenant=row.tenant,
        app=row.app,
        user=row.user_id,
        error=str(error.get("type", "")),
        message=str(error.get("message", "")),
        error_id=error_id,
        cause=None if cause is None else Cause(**cause),
        attempts=row.attempts,
        created=moment(seconds(row.created)),
        ended=moment(seconds(row.ended)),
        is_answer=row.answers is not None or "answers" in row.input,
        retry=row.retry,
    )
