"""Turns that wait for a person, a credential or a later result, with the calls that wait."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from lango.core.fleet import MAX_SHOWN, WaitingCall, WaitingTurn
from lango.core.times import moment
from lango.core.turns.events import ApprovalRequired, CredentialRequired, ToolStarted
from lango.store.db.clock import seconds
from lango.store.db.database import Database
from lango.store.db.statement import Row
from lango.store.insight.json_fields import ARGUMENTS_ROOM, json_fields
from lango.store.schema.tables import sessions, turn_events, turns

IS_WAITING: Final = sa.and_(turns.c.waits_for.is_not(None), turns.c.state == "input_required")
"""Matches the partial index on `waits_for`: only turns that have it can be waiting."""
_TYPES: Final = tuple(kind.type for kind in (ApprovalRequired, CredentialRequired, ToolStarted))
_FIELDS: Final = ("call", "approval", "credential", "name", "kind", "arguments")


async def read_waiting(
    database: Database, tenant: str, *, app: str | None = None, limit: int = MAX_SHOWN
) -> list[WaitingTurn]:
    """A tenant's turns that wait for answers, the longest wait first."""
    statement = (
        sa.select(turns, sessions.c.public_id, sessions.c.user_id)
        .join(sessions, sessions.c.pk == turns.c.session_pk)
        .where(IS_WAITING, turns.c.tenant == tenant)
        .order_by(turns.c.ended, turns.c.id)
        .limit(limit)
    )
    if app is not None:
        statement = statement.where(turns.c.app == app)

    async def once(connection: AsyncConnection) -> list[WaitingTurn]:
        rows = (await connection.execute(statement)).all()
        events = await _events(connection, rows)
        return [_waiting(row, events) for row in rows]

    return await database.read(once)


async def _events(
    connection: AsyncConnection, rows: Sequence[Row]
) -> dict[tuple[int, int, str], Row]:
    """The events that began the calls of these turns, by session, turn and the call's id."""
    if not rows:
        return {}
    of_turns = sa.tuple_(turn_events.c.session_pk, turn_events.c.turn).in_(
        [(row.session_pk, row.number) for row in rows]
    )
    statement = sa.select(
        *(turn_events.c.session_pk, turn_events.c.turn, turn_events.c.type),
        *json_fields(connection, turn_events.c.data, _FIELDS),
    ).where(of_turns, turn_events.c.type.in_(_TYPES))
    return {
        (event.session_pk, event.turn, event.approval or event.credential or event.call): event
        for event in await connection.execute(statement)
    }


def _waiting(row: Row, events: dict[tuple[int, int, str], Row]) -> WaitingTurn:
    calls = (_call(name, events.get((row.session_pk, row.number, name))) for name in row.waits_for)
    return WaitingTurn(
        turn=row.id,
        session=row.public_id,
        tenant=row.tenant,
        app=row.app,
        user=row.user_id,
        since=moment(seconds(row.ended)),
        calls=tuple(calls),
    )


def _call(name: str, event: Any) -> WaitingCall:
    if event is None:  # the log was deleted
        return WaitingCall(name, "unknown", "", "")
    arguments = str(event.arguments or "")[:ARGUMENTS_ROOM]
    if event.type == ApprovalRequired.type:
        return WaitingCall(name, "approval", event.name, arguments)
    if event.type == CredentialRequired.type:
        return WaitingCall(name, "credential", event.name, "", event.kind)
    return WaitingCall(name, "result", event.name, arguments)
