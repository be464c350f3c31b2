"""Finds where a conversation continues whose client sends no session, by its visible messages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection

from lango.store.db.clock import NOW
from lango.store.db.database import Database
from lango.store.db.statement import Prepared, Transaction
from lango.store.schema.tables import conversations, sessions, turns
from lango.store.sessions.entries import SessionKey
from lango.store.turns.rows import Turn

_LOOKED_AT: Final = 100  # of the newest points with the same hash
_LOCK_SESSION: Final = Prepared(
    sa.select(sessions.c.pk)
    .where(
        sessions.c.pk == sa.bindparam("of_session"), sessions.c.tenant == sa.bindparam("of_tenant")
    )
    .with_for_update(read=True, key_share=True)  # blocks deletes, not writes
)
_ADD: Final = Prepared(
    postgresql.insert(conversations).values(created=NOW).on_conflict_do_nothing(),
    on_sqlite=sqlite.insert(conversations).values(created=NOW).on_conflict_do_nothing(),
)


@dataclass(frozen=True, slots=True)
class ConversationPoint:
    """A turn of a session, after which a conversation continues."""

    session: SessionKey
    session_pk: int
    public_id: str
    turn: int
    turn_id: str
    last: int  # the number of the session's newest turn
    is_end: bool  # the session has no later message; answers to earlier calls are none
    has_key: bool  # the session has a turn with the given idempotency key


class ConversationStore:
    """The conversations of all users; a user finds only their own."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, turn: Turn, known_by: str) -> None:
        """Record the hash of what was visible when a turn ended, unless its session was deleted."""
        key = turn.session
        row: dict[str, Any] = {
            "session_pk": turn.session_pk,
            "turn": turn.number,
            "hash": known_by,
            **key.of_user,
        }

        async def once(transaction: Transaction) -> None:
            of_session = {"of_session": turn.session_pk, "of_tenant": key.tenant}
            if await transaction.one(_LOCK_SESSION, **of_session) is not None:
                await transaction.each(_ADD, [row])

        await self._database.transact(once, session=key)

    async def find(
        self, tenant: str, user: str, app: str, known_by: str, *, idempotency_key: str | None = None
    ) -> list[ConversationPoint]:
        """Where a conversation may continue, the best point first.

        Sessions with the idempotency key come first, then points at the end of their session, then
        the newest.
        """
        statement = _points(idempotency_key).where(
            conversations.c.tenant == tenant,
            conversations.c.user_id == user,
            conversations.c.app_name == app,
            conversations.c.hash == known_by,
        )

        async def once(connection: AsyncConnection) -> list[ConversationPoint]:
            return [
                ConversationPoint(
                    SessionKey(tenant, app, user, row.id),
                    row.session_pk,
                    row.public_id,
                    row.turn,
                    row.turn_id,
                    row.last,
                    row.is_end,
                    row.has_key,
                )
                for row in await connection.execute(statement)
            ]

        points = await self._database.read(once)
        return sorted(points, key=lambda point: (point.has_key, point.is_end), reverse=True)


def _points(idempotency_key: str | None) -> sa.Select[*tuple[Any, ...]]:
    """The newest points first.

    A turn that answers a call, with an approval or a result, is no later message: it belongs to the
    invocation of the call, which began at the point or before it. A failed one may have lost its
    `answers`.
    """
    later, of_point, under_key, all_of_it = (
        turns.alias(name) for name in ("later", "begun", "under_key", "all")
    )
    last = sa.select(sa.func.max(all_of_it.c.number)).where(
        all_of_it.c.session_pk == conversations.c.session_pk
    )
    belongs_to_begun = sa.exists().where(
        of_point.c.session_pk == conversations.c.session_pk,
        of_point.c.number <= conversations.c.turn,
        of_point.c.invocation_id == later.c.invocation_id,
    )
    has_later_message = sa.exists().where(
        later.c.session_pk == conversations.c.session_pk,
        later.c.number > conversations.c.turn,
        later.c.answers.is_(None),
        ~belongs_to_begun.correlate(conversations, later),
    )
    has_key = sa.exists().where(
        under_key.c.session_pk == conversations.c.session_pk,
        under_key.c.idempotency_key == idempotency_key,
    )
    at_turn = sa.and_(
        turns.c.session_pk == conversations.c.session_pk, turns.c.number == conversations.c.turn
    )
    return (
        sa.select(
            *(sessions.c.id, sessions.c.public_id),
            *(conversations.c.session_pk, conversations.c.turn, turns.c.id.label("turn_id")),
            last.scalar_subquery().label("last"),
            (~has_later_message).label("is_end"),
            (sa.false() if idempotency_key is None else has_key).label("has_key"),
        )
        .join(sessions, sessions.c.pk == conversations.c.session_pk)
        .join(turns, at_turn)
        .order_by(conversations.c.session_pk.desc(), conversations.c.turn.desc())
        .limit(_LOOKED_AT)
    )
