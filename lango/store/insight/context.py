"""The messages of a session when a model was called, with those that a later rewind undid."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from lango.core.messages.messages import CONTROL
from lango.store.db.database import Database
from lango.store.schema.tables import messages
from lango.store.sessions.entries import StoredMessage
from lango.store.sessions.load import ROW

_NO_END: Final = 1 << 62


@dataclass(frozen=True, slots=True)
class MessageRange:
    """A range of stored messages: its first and last seq, their number and their tokens."""

    first: int
    last: int
    messages: int
    tokens: int


class SeenMessages:
    """The messages of a session as they were when `upto` was the newest seq."""

    def __init__(self, database: Database, session_pk: int, last_seq: int) -> None:
        self._database = database
        self._last_seq = last_seq
        self._of_session = messages.c.session_pk == session_pk
        self._stood = sa.or_(messages.c.undone_by.is_(None), messages.c.undone_by > last_seq)
        self._seen = (
            self._of_session,
            messages.c.role != CONTROL,
            messages.c.seq <= last_seq,
            self._stood,
        )

    async def since(self, first: int) -> list[StoredMessage]:
        """All messages from seq `first` on, in order."""
        return await self._rows(sa.select(*ROW).where(*self._seen, messages.c.seq >= first))

    async def before(self, first: int, limit: int) -> list[StoredMessage]:
        """The last `limit` messages before seq `first`, in order."""
        statement = sa.select(*ROW).where(*self._seen, messages.c.seq < first)
        return await self._rows(statement.order_by(messages.c.seq.desc()).limit(limit))

    async def summaries(self) -> list[StoredMessage]:
        """The rows of the summaries that were stored before the call's own answer, in order."""
        later = sa.select(sa.func.min(messages.c.seq)).where(
            self._of_session, messages.c.role != CONTROL, messages.c.seq > self._last_seq
        )
        is_before = messages.c.seq < sa.func.coalesce(later.scalar_subquery(), _NO_END)
        statement = sa.select(*ROW).where(
            self._of_session,
            messages.c.role == CONTROL,
            is_before,
            self._stood,
            sa.cast(messages.c.event, sa.Text).contains('"compaction"'),
        )
        return await self._rows(statement)

    async def _rows(self, statement: sa.Select[Any]) -> list[StoredMessage]:
        async def read(connection: AsyncConnection) -> list[StoredMessage]:
            return sorted(map(StoredMessage._make, await connection.execute(statement)))

        return await self._database.read(read)

    async def message_range(
        self, first: int, end: int, until: float | None = None
    ) -> MessageRange | None:
        """The range of messages from seq `first` on, before `end`; None if it is empty.

        With `until`, only those up to that time.
        """
        column = messages.c.seq
        counted = sa.select(
            sa.func.min(column),
            sa.func.max(column),
            sa.func.count(),
            sa.func.coalesce(sa.func.sum(messages.c.tokens), 0),
        ).where(*self._seen, column >= first, column < end)
        if until is not None:
            counted = counted.where(messages.c.timestamp <= until)

        async def read(connection: AsyncConnection) -> MessageRange | None:
            oldest, newest, count, tokens = (await connection.execute(counted)).one()
            return MessageRange(oldest, newest, count, int(tokens)) if count else None

        return await self._database.read(read)
