"""What was in a session when a model was called: also what a rewind has taken back since."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from lango.core.messages import CONTROL
from lango.store.database import Database
from lango.store.entries import StoredMessage
from lango.store.loading import ROW
from lango.store.tables import messages


@dataclass(frozen=True, slots=True)
class Stretch:
    """So many stored messages, of which these are the oldest and the newest."""

    first: int
    last: int
    messages: int
    tokens: int


class SeenMessages:
    """The messages of a session as they stood when `upto` was the newest."""

    def __init__(self, database: Database, session_pk: int, upto: int) -> None:
        self._database = database
        self._seen = (
            messages.c.session_pk == session_pk,
            messages.c.role != CONTROL,
            messages.c.seq <= upto,
            sa.or_(messages.c.undone_by.is_(None), messages.c.undone_by > upto),
        )

    async def since(self, first: int) -> list[StoredMessage]:
        """All from a number on, in order."""
        return await self._rows(sa.select(*ROW).where(*self._seen, messages.c.seq >= first))

    async def before(self, first: int, limit: int) -> list[StoredMessage]:
        """The last ones before a number, in order."""
        found = sa.select(*ROW).where(*self._seen, messages.c.seq < first)
        return await self._rows(found.order_by(messages.c.seq.desc()).limit(limit))

    async def _rows(self, wanted: sa.Select[Any]) -> list[StoredMessage]:
        async def read(connection: AsyncConnection) -> list[StoredMessage]:
            return sorted(map(StoredMessage._make, await connection.execute(wanted)))

        return await self._database.look(read)

    async def stretch(self, first: int, end: int) -> Stretch | None:
        """How many there are from a number on, before another; None: not one."""
        column = messages.c.seq
        counted = sa.select(
            sa.func.min(column),
            sa.func.max(column),
            sa.func.count(),
            sa.func.coalesce(sa.func.sum(messages.c.tokens), 0),
        ).where(*self._seen, column >= first, column < end)

        async def read(connection: AsyncConnection) -> Stretch | None:
            oldest, newest, count, tokens = (await connection.execute(counted)).one()
            return Stretch(oldest, newest, count, int(tokens)) if count else None

        return await self._database.look(read)
