"""Deleting a session with all its data, while others may be writing to it.

The order makes it complete. The lock on the session's row blocks appends, uploads, records of
model calls and saves without a turn. The turns are deleted next: every write of a claimed turn
(child sessions, artifacts, ledger, log) locks the turn's row, so the delete waits for one that is
in progress, and a later one finds no row. Only then is it certain what there is to delete.
"""

from __future__ import annotations

from dataclasses import replace

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from lango.store.allowances import keep_costs
from lango.store.credentials.store import delete_requests
from lango.store.files import rows as artifact_rows
from lango.store.memory.rows import forget_session
from lango.store.model_calls import delete_calls
from lango.store.schema.tables import conversations, messages, sessions, state_changes
from lango.store.sessions.entries import SessionKey
from lango.store.turns import rows as turn_rows


async def delete_session(
    connection: AsyncConnection, key: SessionKey, condition: sa.ColumnElement[bool]
) -> None:
    """Delete a session in a transaction, with its child sessions; a missing one is no error."""
    pk = await connection.scalar(sa.select(sessions.c.pk).where(condition).with_for_update())
    if pk is not None:
        await _delete(connection, key, pk)


async def _children(
    connection: AsyncConnection, key: SessionKey, pk: int
) -> list[tuple[SessionKey, int]]:
    """The sessions of agents that tools ran in a session: they are of the same app and user."""
    # In the index's order.
    is_child = (sessions.c.tenant == key.tenant, sessions.c.parent_pk == pk)
    statement = sa.select(sessions.c.id, sessions.c.pk).where(*is_child).with_for_update()
    rows = await connection.execute(statement)
    return [(replace(key, session_id=row.id), row.pk) for row in rows]


async def _delete(connection: AsyncConnection, key: SessionKey, pk: int) -> None:
    """Delete a locked session."""
    await keep_costs(connection, pk)
    await turn_rows.delete_turns(connection, pk)
    for child in await _children(connection, key, pk):
        await _delete(connection, *child)
    for kind in (artifact_rows.ARTIFACT, artifact_rows.EVENT_DATA):
        await artifact_rows.delete_artifacts(connection, artifact_rows.of_key(key, kind))
    await delete_calls(connection, key, pk)
    await forget_session(connection, pk)
    await delete_requests(connection, pk)
    for table in (messages, state_changes, conversations):
        await connection.execute(sa.delete(table).where(table.c.session_pk == pk))
    await connection.execute(sa.delete(sessions).where(sessions.c.pk == pk))
