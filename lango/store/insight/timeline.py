"""Timelines of turns, read from rows that are stored anyway."""

from __future__ import annotations

from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from lango.core.streams import Usage
from lango.core.times import moment, moment_or_none
from lango.core.turn_json import usage_of
from lango.insight.timeline import (
    ARGUMENTS_ROOM,
    MOST_STEPS,
    Timeline,
    model_steps,
    total_cost,
)
from lango.store.clock import seconds
from lango.store.database import Database
from lango.store.model_calls import calls_of_turn
from lango.store.tables import sessions, tool_ledger, turn_events, turns
from lango.store.timeline_steps import TOLD_BY, LedgerRun, ToldEvent, steps_of
from lango.store.turn_rows import Turn, turn_of

_FIELDS: Final = ("call", "name", "approval", "error", "error_id", "why")


async def read_timeline(database: Database, turn: Turn) -> Timeline:
    """The timeline of a turn, and of the turns that answered its questions."""

    async def once(connection: AsyncConnection) -> Timeline:
        public_id = await connection.scalar(
            sa.select(sessions.c.public_id).where(
                sessions.c.pk == turn.session_pk, sessions.c.tenant == turn.session.tenant
            )
        )
        return await _read(connection, turn, public_id or "")

    return await database.look(once)


async def _read(connection: AsyncConnection, turn: Turn, public_id: str) -> Timeline:
    related = await _turns(connection, turn)
    calls = await calls_of_turn(connection, turn.session_pk, turn.invocation_id, MOST_STEPS)
    runs = await _runs(connection, turn)
    events = await _events(connection, turn.session_pk, [one.number for one in related])
    steps = [*model_steps(calls), *steps_of(related, events, runs)]
    steps.sort(key=lambda step: (step.started, step.kind != "queue", step.kind != "attempt"))
    reported = [call.attempt.usage for call in calls if call.attempt.usage is not None]
    if not calls:  # not every set-up records them
        reported = [usage_of(one.usage) for one in related if one.usage is not None]
    ended = [one.ended for one in related if one.ended is not None]
    goes_on = len(ended) < len(related) or related[-1].state == "waiting"
    return Timeline(
        turn=turn.id,
        session=public_id,
        app=turn.session.app_name,
        state=turn.state,
        started=moment(related[0].created),
        ended=None if goes_on else moment_or_none(max(ended)),
        turns=tuple(one.id for one in related),
        usage=sum(reported, Usage()),
        cost=total_cost([call.price for call in calls]),
        log_kept=not any(one.trimmed for one in related),
        steps=tuple(steps[:MOST_STEPS]),
        more=len(steps) > MOST_STEPS or len(calls) == MOST_STEPS or len(runs) == MOST_STEPS,
    )


async def _turns(connection: AsyncConnection, turn: Turn) -> list[Turn]:
    """The turn that began the invocation, which has its id, and those that answered in it."""
    answering = sa.and_(
        turns.c.session_pk == turn.session_pk,
        turns.c.invocation_id == turn.invocation_id,
        turns.c.answers.is_not(None),
    )
    first = sa.and_(turns.c.id == turn.invocation_id, turns.c.session_pk == turn.session_pk)
    found = sa.select(turns).where(sa.or_(first, answering, turns.c.id == turn.id))
    rows = await connection.execute(found.order_by(turns.c.number))
    return [turn_of(row, turn.session) for row in rows] or [turn]


async def _runs(connection: AsyncConnection, turn: Turn) -> list[LedgerRun]:
    """The tool runs, including those of agents that tools ran: named after their caller."""
    inner = tool_ledger.c.invocation_id.startswith(f"{turn.invocation_id}/", autoescape=True)
    statement = (
        sa.select(
            *(tool_ledger.c.call_key, tool_ledger.c.tool),
            _beginning(tool_ledger.c.args).label("arguments"),
            *(tool_ledger.c.started, tool_ledger.c.finished),
            *_fields(connection, tool_ledger.c.result, ("error", "error_id")),
        )
        .where(
            tool_ledger.c.session_pk == turn.session_pk,
            sa.or_(tool_ledger.c.invocation_id == turn.invocation_id, inner),
        )
        .order_by(tool_ledger.c.started)
        .limit(MOST_STEPS)
    )
    return [
        LedgerRun(
            call_key=row.call_key,
            tool=row.tool,
            arguments=row.arguments,
            started=seconds(row.started),
            finished=None if row.finished is None else seconds(row.finished),
            error=str(row.error or ""),
            error_id=str(row.error_id or ""),
        )
        for row in await connection.execute(statement)
    ]


async def _events(
    connection: AsyncConnection, session_pk: int, numbers: list[int]
) -> list[ToldEvent]:
    data = turn_events.c.data
    statement = (
        sa.select(
            *(turn_events.c.turn, turn_events.c.type, turn_events.c.created),
            *_fields(connection, data, (*_FIELDS, "arguments", "attempt", "after")),
        )
        .where(
            turn_events.c.session_pk == session_pk,
            turn_events.c.turn.in_(numbers),
            turn_events.c.type.in_(TOLD_BY),
        )
        .order_by(turn_events.c.turn, turn_events.c.number)
        .limit(4 * MOST_STEPS)
    )
    return [
        ToldEvent(
            turn=row.turn,
            type=row.type,
            at=seconds(row.created),
            arguments=str(row.arguments or "")[:ARGUMENTS_ROOM],
            attempt=None if row.attempt is None else int(row.attempt),
            after=float(row.after or 0.0),
            **{name: str(getattr(row, name) or "") for name in _FIELDS},
        )
        for row in await connection.execute(statement)
    ]


def _fields(
    connection: AsyncConnection, column: sa.Column[Any], names: tuple[str, ...]
) -> list[sa.Label[Any]]:
    """Fields of a JSON column as text, without reading the rest of it, which may be large."""
    if connection.dialect.name == "sqlite":
        return [sa.func.json_extract(column, f"$.{name}").label(name) for name in names]
    field = column.op("->>", return_type=sa.Text())
    return [field(sa.literal_column(f"'{name}'")).label(name) for name in names]


def _beginning(column: sa.Column[Any]) -> sa.Function[Any]:
    return sa.func.substr(sa.cast(column, sa.Text), 1, ARGUMENTS_ROOM)
