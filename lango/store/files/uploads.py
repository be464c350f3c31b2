"""Files of sessions: the artifacts that have bytes, written and read a chunk at a time."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection
from dataclasses import dataclass, replace
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from lango.core.turns.inputs import FileRef
from lango.core.values import JsonObject
from lango.store.db.clock import seconds
from lango.store.db.database import Database
from lango.store.files import rows as artifact_rows
from lango.store.files.contents import Content
from lango.store.files.rows import ARTIFACT, NewArtifact, of_key
from lango.store.files.storage import chunks, stored
from lango.store.schema.tables import artifacts
from lango.store.sessions.append import missing
from lango.store.sessions.entries import SessionKey, SessionRef


@dataclass(frozen=True, slots=True)
class StoredFile:
    """One version of a file, without its bytes."""

    pk: int
    name: str
    version: int
    mime_type: str | None
    size: int
    sha256: str
    object_key: str | None
    created: float


@dataclass(frozen=True, slots=True)
class NewFile:
    """A file to save."""

    name: str
    mime_type: str
    content: Content

    @property
    def part(self) -> JsonObject:
        """The file as an ADK part, without its bytes."""
        return {"inline_data": {"mime_type": self.mime_type, "display_name": self.name}}

    @property
    def artifact(self) -> NewArtifact:
        """The file as a version of an artifact."""
        return NewArtifact(self.name, self.content, self.part, self.mime_type)


class SqlFileStore:
    """The files of sessions; ADK's artifact service on the same database sees them, too."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def save(
        self, key: SessionKey, new: NewFile, *, public_id: str | None = None
    ) -> StoredFile:
        """Save a file as the newest version of its name; SessionNotFoundError without a session.

        With `public_id`, a newer session of the same name does not count. If the newest version is
        the same file, nothing is saved: a repeated request gets the same version.
        """
        if self._database.objects is not None:
            newest = await self._database.read(artifact_rows.find_version, key, new.name, None)
            if newest is None or not _is_same(newest, new):
                new = replace(new, content=await stored(self._database, key.tenant, new.content))
        return await self._database.write(
            _save, key, new, public_id, session=key, is_long=new.artifact.is_long
        )

    async def find(
        self, key: SessionKey, name: str, version: int | None = None
    ) -> StoredFile | None:
        """One version, by default the newest; None, too, for an artifact without bytes."""
        row = await self._database.read(artifact_rows.find_version, key, name, version)
        return _file_of(row) if row is not None and row.size else None

    async def page(self, key: SessionKey, *, after: str = "", limit: int = 50) -> list[StoredFile]:
        """The newest version of each file, ordered by name, after the name `after`."""
        return await self._database.read(_newest, key, artifacts.c.name > after, limit)

    async def newest(self, key: SessionKey, names: Collection[str]) -> dict[str, FileRef]:
        """The newest version of each of these files that exists."""
        condition = artifacts.c.name.in_(names)
        files = await self._database.read(_newest, key, condition, len(names))
        return {file.name: FileRef(file.name, file.version) for file in files}

    def chunks(
        self, file: StoredFile, start: int = 0, end: int | None = None
    ) -> AsyncGenerator[bytes]:
        """The bytes of a file, all or from `start` to before `end`.

        No transaction stays open while a slow client reads them. UnknownFileError if it is
        deleted meanwhile.
        """
        last = file.size if end is None else end
        return chunks(self._database, file.pk, file.object_key, start, last)


async def _save(
    connection: AsyncConnection, key: SessionKey, new: NewFile, public_id: str | None
) -> StoredFile:
    if not await artifact_rows.hold_session(connection, key, public_id):
        raise missing(SessionRef(key))
    newest = await artifact_rows.find_version(connection, key, new.name, None)
    if newest is None or not _is_same(newest, new):
        version = await artifact_rows.add_version(connection, key, new.artifact)
        newest = await artifact_rows.find_version(connection, key, new.name, version)
    assert newest is not None, "this transaction has written it"  # noqa: S101
    return _file_of(newest)


def _is_same(row: sa.Row[Any], new: NewFile) -> bool:
    stored = (row.mime_type, row.size, row.sha256)
    return stored == (new.mime_type, new.content.size, new.content.sha256)


async def _newest(
    connection: AsyncConnection, key: SessionKey, condition: sa.ColumnElement[bool], limit: int
) -> list[StoredFile]:
    """Newest versions by name, except those without bytes, which a rewind has hidden."""
    of_session = of_key(key, ARTIFACT)
    last = sa.func.max(artifacts.c.version).label("version")
    newest = (
        sa.select(artifacts.c.name, last).where(of_session, condition).group_by(artifacts.c.name)
    )
    last_of = newest.subquery()
    is_last = sa.and_(artifacts.c.name == last_of.c.name, artifacts.c.version == last_of.c.version)
    statement = (
        sa.select(*artifact_rows.ROW).join(last_of, is_last).where(of_session, artifacts.c.size > 0)
    )
    rows = await connection.execute(statement.order_by(artifacts.c.name).limit(limit))
    return list(map(_file_of, rows))


def _file_of(row: sa.Row[Any]) -> StoredFile:
    return StoredFile(
        pk=row.pk,
        name=row.name,
        version=row.version,
        mime_type=row.mime_type,
        size=row.size,
        sha256=row.sha256,
        object_key=row.object_key,
        created=seconds(row.created),
    )
