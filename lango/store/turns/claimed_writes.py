"""Writes of a claimed turn outside its own session, under the turn's fence.

These are its child sessions (of agents that a tool runs) and its artifacts. A worker that has lost
the turn can write none of them.
"""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from lango.core.failpoints import failpoint
from lango.core.ids import new_id
from lango.errors import SessionExistsError
from lango.store.db.database import Database
from lango.store.db.statement import CoreTransaction
from lango.store.files import rows as artifact_rows
from lango.store.files.rows import NewArtifact
from lango.store.files.storage import stored_artifact, stored_entry
from lango.store.schema.tables import sessions
from lango.store.sessions import append as appending
from lango.store.sessions.entries import Appended, Entry, SessionKey, SessionRef, StateChange
from lango.store.sessions.load import key_is
from lango.store.sessions.store import create_session
from lango.store.turns import rows as turn_rows
from lango.store.turns.rows import Claim


class ClaimedWrites:
    """The further writes of one claimed turn. Every operation may be repeated after a fault."""

    def __init__(self, database: Database, claim: Claim) -> None:
        self.database = database
        self.claim = claim

    async def open_child(self, key: SessionKey, state: StateChange) -> None:
        """Create a child session, unless an earlier attempt has created it.

        SessionExistsError if a session that is not this turn's child has the name.
        """
        key.checked()
        key.check_state(state)
        public_id = new_id("ses")

        async def once(connection: AsyncConnection) -> None:
            await self._hold(connection)
            parent = self.claim.turn.session_pk
            statement = sa.select(sessions.c.pk, sessions.c.parent_pk).where(key_is(key))
            child = (await connection.execute(statement)).one_or_none()
            if child is None:
                transaction = CoreTransaction(connection)
                await create_session(transaction, key, public_id, state, parent_pk=parent)
            elif child.parent_pk != parent:
                raise SessionExistsError(f"Session with id {key.session_id} already exists.")

        await self.database.write(once, session=key)

    async def append(self, ref: SessionRef, entry: Entry) -> Appended:
        """Append to a child session; idempotent by the entry's event id."""
        ref.key.check_state(entry.state)
        entry = await stored_entry(self.database, ref.key.tenant, entry)

        async def once(connection: AsyncConnection) -> Appended:
            await self._hold(connection)
            transaction, root_pk = CoreTransaction(connection), self.claim.turn.session_pk
            return await appending.append(transaction, ref, entry, None, root_pk=root_pk)

        failpoint("append.before")
        appended = await self.database.write(once, session=ref.key, is_long=entry.is_long)
        failpoint("append.after")
        return appended

    async def save_artifact(self, key: SessionKey, new: NewArtifact) -> int:
        """Save a new version, or find the one that the same call saved in an earlier attempt."""
        # Before the first try: a retry reuses the name and the object.
        artifact = await stored_artifact(self.database, key.tenant, new.named)

        async def once(connection: AsyncConnection) -> int:
            await self._hold(connection)
            return await artifact_rows.save_once(connection, key, artifact)

        failpoint("artifact.before")
        session = self.claim.turn.session
        version = await self.database.write(once, session=session, is_long=artifact.is_long)
        failpoint("artifact.after")
        return version

    async def _hold(self, connection: AsyncConnection) -> None:
        """Prevent a takeover of the turn until the transaction ends; Fenced if it is lost."""
        await turn_rows.hold(CoreTransaction(connection), self.claim)
