"""Reads the rows that a turn's timeline is built from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from lango.core.context.model_calls import ModelCall
from lango.core.turns.events import (
    ApprovalRequired,
    CredentialRequired,
    Retrying,
    Started,
    ToolFinished,
    ToolStarted,
)
from lango.store.db.clock import seconds
from lango.store.db.database import Database
from lango.store.insight.json_fields import ARGUMENTS_ROOM, beginning, json_fields
from lango.store.model_calls import calls_of_turn
from lango.store.schema.tables import sessions, tool_ledger, turn_events, turns
from lango.store.turns.ledger import call_of_key
from lango.store.turns.rows import Turn, turn_of

MAX_STEPS: Final = 1_000
_TYPES: Final = tuple(
    kind.type
    for kind in (
        Started,
        Retrying,
        ToolStarted,
        ToolFinished,
        ApprovalRequired,
        CredentialRequired,
    )
)
"""The events that hold what the rows of turns and tools do not."""
_FIELDS: Final = ("call", "name", "approval", "credential", "error", "error_id", "why")


@dataclass(frozen=True, slots=True)
class TimelineEvent:
    """The part of a logged event that a timeline needs."""

    turn: int
    type: str
    at: float
    call: str = ""
    name: str = ""
    approval: str = ""
    credential: str = ""
    arguments: str = ""
    error: str = ""
    error_id: str = ""
    attempt: int | None = None
    after: float = 0.0
    why: str = ""


@dataclass(frozen=True, slots=True)
class LedgerRun:
    """The part of a ledger row that a timeline needs."""

    call: str
    tool: str
    arguments: str
    started: float
    finished: float | None
    error: str = ""
    error_id: str = ""


@dataclass(frozen=True, slots=True)
class TimelineRows:
    """The turns of one invocation in order, with their model calls, tool runs and events."""

    session: str  # its public id
    turns: list[Turn]
    calls: list[ModelCall]
    runs: list[LedgerRun]
    events: list[TimelineEvent]


async def read_timeline_rows(database: Database, turn: Turn) -> TimelineRows:
    """The rows of a turn, and of the turns that answered its questions."""
    return await database.read(_read, turn)


async def _read(connection: AsyncConnection, turn: Turn) -> TimelineRows:
    public_id = await connection.scalar(
        sa.select(sessions.c.public_id).where(
            sessions.c.pk == turn.session_pk, sessions.c.tenant == turn.session.tenant
        )
    )
    related = await _turns(connection, turn)
    return TimelineRows(
        session=public_id or "",
        turns=related,
        calls=await calls_of_turn(connection, turn.session_pk, turn.invocation_id, MAX_STEPS),
        runs=await _runs(connection, turn),
        events=await _events(
            connection, turn.session_pk, [related_turn.number for related_turn in related]
        ),
    )


async def _turns(connection: AsyncConnection, turn: Turn) -> list[Turn]:
    """The turn that began the invocation, which has its id, and those that answered in it."""
    answering = sa.and_(
        turns.c.session_pk == turn.session_pk,
        turns.c.invocation_id == turn.invocation_id,
        turns.c.answers.is_not(None),
    )
    first = sa.and_(turns.c.id == turn.invocation_id, turns.c.session_pk == turn.session_pk)
    statement = sa.select(turns).where(sa.or_(first, answering, turns.c.id == turn.id))
    rows = await connection.execute(statement.order_by(turns.c.number))
    return [turn_of(row, turn.session) for row in rows] or [turn]


async def _runs(connection: AsyncConnection, turn: Turn) -> list[LedgerRun]:
    """The tool runs, including those of agents that tools ran: named after their caller."""
    inner = tool_ledger.c.invocation_id.startswith(f"{turn.invocation_id}/", autoescape=True)
    statement = (
        sa.select(
            *(tool_ledger.c.call_key, tool_ledger.c.tool),
            beginning(tool_ledger.c.args).label("arguments"),
            *(tool_ledger.c.started, tool_ledger.c.finished),
            *json_fields(connection, tool_ledger.c.result, ("error", "error_id")),
        )
        .where(
            tool_ledger.c.session_pk == turn.session_pk,
            sa.or_(tool_ledger.c.invocation_id == turn.invocation_id, inner),
        )
        .order_by(tool_ledger.c.started)
        .limit(MAX_STEPS)
    )
    return [
        LedgerRun(
            call=call_of_key(row.call_key),
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
) -> list[TimelineEvent]:
    data = turn_events.c.data
    statement = (
        sa.select(
            *(turn_events.c.turn, turn_events.c.type, turn_events.c.created),
            *json_fields(connection, data, (*_FIELDS, "arguments", "attempt", "after")),
        )
        .where(
            turn_events.c.session_pk == session_pk,
            turn_events.c.turn.in_(numbers),
            turn_events.c.type.in_(_TYPES),
        )
        .order_by(turn_events.c.turn, turn_events.c.number)
        .limit(4 * MAX_STEPS)
    )
    return [
        TimelineEvent(
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
