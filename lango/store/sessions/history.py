"""The rows of a session in order, including changes of state that no message carries."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, cast

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from lango.core.messages.messages import CONTROL
from lango.store.db.database import Database
from lango.store.db.statement import Prepared
from lango.store.schema.tables import messages, state_changes
from lango.store.sessions.entries import StoredMessage
from lango.store.sessions.load import ROW

_TABLES: Final = (messages, state_changes)
_CHANGE: Final = [
    state_changes.c.seq,
    state_changes.c.event_id,
    state_changes.c.invocation_id,
    sa.literal(CONTROL, sa.Text),
    sa.literal("", sa.Text),
    sa.literal("", sa.Text),
    sa.cast(sa.null(), sa.Text),
    sa.literal(0, sa.Integer),
    sa.literal(0.0, sa.Double),
    sa.cast(sa.null(), sa.Text),
    sa.cast(state_changes.c.delta, sa.Text),
]
"""A change of state in the columns of a message: without author and time, which it has not."""


def _rows(*conditions: Callable[[sa.Table], sa.ColumnElement[bool]]) -> sa.CompoundSelect[Any]:
    selects = [
        sa.select(*columns).where(
            table.c.session_pk == sa.bindparam("of_session"),
            table.c.undone_by.is_(None),
            table.c.seq > sa.bindparam("after"),
            *(condition(table) for condition in conditions),
        )
        for table, columns in zip(_TABLES, (ROW, _CHANGE), strict=True)
    ]
    return sa.union_all(*selects).order_by(sa.text("1"))


def _of_invocation(table: sa.Table) -> sa.ColumnElement[bool]:
    return table.c.invocation_id == sa.bindparam("invocation")


_ALL: Final = _rows()
_OF_INVOCATION: Final = Prepared(_rows(_of_invocation))
_SEQ: Final = Prepared(
    sa.select(messages.c.seq).where(
        messages.c.session_pk == sa.bindparam("of_session"),
        messages.c.event_id == sa.bindparam("event"),
    )
)


async def read_all(database: Database, session_pk: int) -> list[StoredMessage]:
    """Every row of a session that no rewind undid."""

    async def once(connection: AsyncConnection) -> list[StoredMessage]:
        values = {"of_session": session_pk, "after": 0}
        return [StoredMessage._make(row) for row in await connection.execute(_ALL, values)]

    return await database.read(once)


async def read_invocation(
    database: Database, session_pk: int, invocation_id: str, *, after: int
) -> list[StoredMessage]:
    """The rows of an invocation after a seq."""
    rows = await database.read(
        _OF_INVOCATION, of_session=session_pk, invocation=invocation_id, after=after
    )
    return [StoredMessage._make(cast("Sequence[Any]", row)) for row in rows]


async def seq_of(database: Database, session_pk: int, event_id: str) -> int | None:
    """The seq of an event's message; None if it is not stored."""
    rows = await database.read(_SEQ, of_session=session_pk, event=event_id)
    return rows[0].seq if rows else None
