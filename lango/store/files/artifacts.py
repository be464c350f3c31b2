"""Artifacts by version: save, find, list, delete."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from lango.core.values import JsonObject
from lango.store.db.clock import seconds
from lango.store.db.database import Database
from lango.store.files import rows as artifact_rows
from lango.store.files.contents import ObjectContent
from lango.store.files.rows import ARTIFACT, NewArtifact, of_key
from lango.store.files.storage import loaded, stored_artifact
from lango.store.schema.tables import artifacts
from lango.store.sessions.append import missing
from lango.store.sessions.entries import SessionKey, SessionRef

_MAX_VERSION: Final = (1 << 31) - 1
"""The largest number that the column can have."""


@dataclass(frozen=True, slots=True)
class StoredArtifact:
    """One version; its bytes only if they were requested."""

    name: str
    version: int
    mime_type: str | None
    part: JsonObject
    metadata: JsonObject
    created: float
    data: bytes = b""


class SqlArtifactStore:
    """Artifacts beside the sessions of a database, so that every process sees them."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def save(
        self, key: SessionKey, new: NewArtifact, *, requires_session: bool = False
    ) -> int:
        """Save a new version; returns its number.

        Locks a session of this database meanwhile, so that its deletion finds the artifact. With
        `requires_session`, SessionNotFoundError if there is none (unless the artifact is the
        user's); else the session may be stored elsewhere.
        """
        # Before the first try: a retry reuses the name and the object.
        artifact = await stored_artifact(self._database, key.tenant, new.named)
        return await self._database.write(
            _save, key, artifact, requires_session, session=key, is_long=artifact.is_long
        )

    async def load(
        self, key: SessionKey, name: str, version: int | None = None, *, with_data: bool = True
    ) -> StoredArtifact | None:
        """One version, by default the newest."""
        if version is not None and not 0 <= version <= _MAX_VERSION:
            return None
        stored = await self._database.read(_load, key, name, version, with_data)
        if stored is None:
            return None
        artifact, content = stored
        data = await loaded(self._database, {name: content})
        return replace(artifact, data=data[name]) if data else None

    async def names(self, key: SessionKey) -> list[str]:
        """The names of a session's (or a user's) artifacts."""
        return await self._database.read(_names, key)

    async def versions(self, key: SessionKey, name: str) -> list[StoredArtifact]:
        """Every version of one artifact, the oldest first."""
        return await self._database.read(_versions, key, name)

    async def delete(self, key: SessionKey, name: str) -> None:
        """Delete an artifact with all its versions."""
        await self._database.write(
            artifact_rows.delete_artifacts, of_key(key, ARTIFACT, name), is_long=True
        )


async def _save(
    connection: AsyncConnection,
    key: SessionKey,
    new: NewArtifact,
    requires_session: bool,
) -> int:
    has_session = not key.session_id or await artifact_rows.hold_session(connection, key)
    if requires_session and not has_session:
        raise missing(SessionRef(key))
    return await artifact_rows.save_once(connection, key, new)


async def _load(
    connection: AsyncConnection,
    key: SessionKey,
    name: str,
    version: int | None,
    with_data: bool,
) -> tuple[StoredArtifact, bytes | ObjectContent] | None:
    row = await artifact_rows.find_version(connection, key, name, version)
    if row is None:
        return None
    contents = await artifact_rows.read_contents(connection, [row] if with_data else [])
    return _stored(row), contents.get(row.pk, b"")


async def _names(connection: AsyncConnection, key: SessionKey) -> list[str]:
    statement = sa.select(artifacts.c.name).where(of_key(key, ARTIFACT)).distinct()
    return sorted((await connection.execute(statement)).scalars())


async def _versions(
    connection: AsyncConnection, key: SessionKey, name: str
) -> list[StoredArtifact]:
    statement = sa.select(*artifact_rows.ROW).where(of_key(key, ARTIFACT, name))
    rows = await connection.execute(statement.order_by(artifacts.c.version))
    return [_stored(row) for row in rows]


def _stored(row: sa.Row[Any]) -> StoredArtifact:
    return StoredArtifact(
        name=row.name,
        version=row.version,
        mime_type=row.mime_type,
        part=row.part,
        metadata=row.about or {},
        created=seconds(row.created),
    )
