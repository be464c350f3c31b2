"""Deleting all data of a user, while turns of the user may be running.

The sessions are deleted first, each in its own transaction: after that, no turn of them can write
(see `sessions/delete.py`), neither to its session nor what all sessions of the user share. Only
then is the shared data deleted. Sessions that are created after the delete began stay whole.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from lango.store.db.database import Database
from lango.store.files.rows import delete_artifacts
from lango.store.memory.rows import forget_user
from lango.store.schema.tables import (
    artifacts,
    credentials,
    memories,
    model_calls,
    sessions,
    user_states,
)
from lango.store.sessions.delete import delete_session
from lango.store.sessions.entries import SessionKey

_PAGE: Final = 100
_TABLES: Final = (sessions, user_states, artifacts, memories, model_calls, credentials)
"""The tables whose rows name a user."""


@dataclass(frozen=True, slots=True)
class DeletedData:
    """The numbers of what was deleted."""

    sessions: int = 0
    memories: int = 0  # entries of memory
    artifacts: int = 0  # of the user; those of sessions are not counted
    states: int = 0  # keys of the user's state
    model_calls: int = 0  # of sessions that are stored elsewhere
    credentials: int = 0  # for tools

    def __add__(self, other: DeletedData) -> DeletedData:
        return DeletedData(
            self.sessions + other.sessions,
            self.memories + other.memories,
            self.artifacts + other.artifacts,
            self.states + other.states,
            self.model_calls + other.model_calls,
            self.credentials + other.credentials,
        )

    def __bool__(self) -> bool:
        return self != DeletedData()


async def apps_of_user(connection: AsyncConnection, tenant: str, user_id: str) -> list[str]:
    """The apps in which a user has data. No index begins with the user: it reads the tenant's."""
    of_tables = (
        sa.select(table.c.app_name).where(table.c.tenant == tenant, table.c.user_id == user_id)
        for table in _TABLES
    )
    return sorted(await connection.scalars(sa.union(*of_tables)))


async def delete_user(database: Database, user: SessionKey) -> DeletedData:
    """Delete all data of a user in an app; the session id of the key does not matter.

    May be repeated after a fault: it deletes the rest.
    """
    # All at once first: on SQLite, each session's own entries would cost a merge of the index.
    remembered = await database.write(_forget_all, user, is_long=True)
    newest = await database.read(_newest_session, user)
    deleted = 0
    while page := await database.read(_sessions, user, newest):
        for key, pk in page:
            condition = sessions.c.pk == pk
            await database.write(delete_session, key, condition, session=key, is_long=True)
            deleted += 1
    shared = await database.write(_delete_shared, user, is_long=True)
    return DeletedData(sessions=deleted, memories=remembered) + shared


def _is_of(table: sa.Table, user: SessionKey) -> sa.ColumnElement[bool]:
    return sa.and_(*(table.c[name] == value for name, value in user.of_user.items()))


async def _forget_all(connection: AsyncConnection, user: SessionKey) -> int:
    return await forget_user(connection, user, all_of_it=True)


async def _newest_session(connection: AsyncConnection, user: SessionKey) -> int:
    newest = sa.select(sa.func.max(sessions.c.pk)).where(_is_of(sessions, user))
    return await connection.scalar(newest) or 0


async def _sessions(
    connection: AsyncConnection, user: SessionKey, newest: int
) -> list[tuple[SessionKey, int]]:
    """The next sessions to delete; the children of one are deleted with it."""
    is_root = sessions.c.parent_pk.is_(None)
    conditions = (_is_of(sessions, user), is_root, sessions.c.pk <= newest)
    rows = await connection.execute(
        sa.select(sessions.c.id, sessions.c.pk)
        .where(*conditions)
        .order_by(sessions.c.pk)
        .limit(_PAGE)
    )
    return [(replace(user, session_id=row.id), row.pk) for row in rows]


async def _delete_shared(connection: AsyncConnection, user: SessionKey) -> DeletedData:
    """Delete what belongs to no session of this database."""
    states = await connection.execute(sa.delete(user_states).where(_is_of(user_states, user)))
    is_alone = _is_of(artifacts, user) & artifacts.c.session_id.not_in(
        sa.select(sessions.c.id).where(_is_of(sessions, user))
    )
    saved = sa.select(sa.func.count()).select_from(artifacts).where(is_alone)
    artifact_count: Any = await connection.scalar(saved)
    await delete_artifacts(connection, is_alone)
    calls = _is_of(model_calls, user) & model_calls.c.session_pk.is_(None)
    deleted = await connection.execute(sa.delete(credentials).where(_is_of(credentials, user)))
    return DeletedData(
        memories=await forget_user(connection, user, all_of_it=False),
        artifacts=artifact_count,
        states=states.rowcount,
        model_calls=(await connection.execute(sa.delete(model_calls).where(calls))).rowcount,
        credentials=deleted.rowcount,
    )
