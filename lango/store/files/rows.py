"""Artifacts and data moved out of events: their rows, and their bytes in chunks of 1 MiB.

A row with an `object_key` has no chunks: `storage.py` has stored its bytes before.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from lango.core.ids import check_key, new_id
from lango.core.values import JsonObject
from lango.errors import StoreError
from lango.store.db.clock import now
from lango.store.db.upserts import upsert
from lango.store.files.contents import BytesInMemory, Content, ObjectContent
from lango.store.schema.tables import artifact_chunks, artifacts, object_deletions, sessions
from lango.store.sessions.entries import Blob, SessionKey
from lango.store.sessions.load import key_is

LARGE: Final = 16 << 20
"""Bytes that take long to write: SQLite takes some 1.5 ms for each MB."""
ARTIFACT: Final = "artifact"
EVENT_DATA: Final = "event"
_ROW_WITHIN: Final = 12 * 3600.0
"""Seconds after which an object gets no first row any more: the sweep may be deleting it."""

# The empty version that ADK's rewind saves over an artifact that it removes.
HIDDEN_TYPE: Final = "application/octet-stream"
HIDDEN_PART: Final[JsonObject] = {"inline_data": {"mime_type": HIDDEN_TYPE}}

# SQLAlchemy's rows reserve the name `metadata`.
ROW: Final = [
    artifacts.c.pk,
    artifacts.c.name,
    artifacts.c.version,
    artifacts.c.mime_type,
    artifacts.c.size,
    artifacts.c.sha256,
    artifacts.c.object_key,
    artifacts.c.part,
    artifacts.c.metadata.label("about"),
    artifacts.c.created,
]


@dataclass(frozen=True, slots=True)
class NewArtifact:
    """One version of an artifact to save."""

    name: str
    data: bytes | Content
    part: JsonObject
    mime_type: str | None = None
    metadata: JsonObject | None = None
    kind: str = ARTIFACT
    call_id: str | None = None  # the call that saves it: a repeated save is recognised by it

    @property
    def content(self) -> Content:
        """The bytes to save."""
        return BytesInMemory(self.data) if isinstance(self.data, bytes) else self.data

    @property
    def is_long(self) -> bool:
        """Whether the database takes long to write it."""
        content = self.content
        return content.size > LARGE and not isinstance(content, ObjectContent)

    @property
    def named(self) -> NewArtifact:
        """The same, with an id of its own if no call saves it."""
        return self if self.call_id is not None else replace(self, call_id=new_id("save"))


def of_key(key: SessionKey, kind: str, name: str | None = None) -> sa.ColumnElement[bool]:
    """The artifacts of a session (or, with session id "", of a user)."""
    names = key.of_part | {"kind": kind} | ({} if name is None else {"name": name})
    return sa.and_(*(artifacts.c[column] == value for column, value in names.items()))


async def hold_session(
    connection: AsyncConnection, key: SessionKey, public_id: str | None = None
) -> bool:
    """Lock a session against deletion until the transaction ends; False if there is none.

    A turn can still write to it.
    """
    conditions = [key_is(key)]
    if public_id is not None:
        conditions.append(sessions.c.public_id == public_id)
    statement = (
        sa.select(sessions.c.pk).where(*conditions).with_for_update(read=True, key_share=True)
    )
    return await connection.scalar(statement) is not None


async def next_version(connection: AsyncConnection, key: SessionKey, name: str) -> int:
    """The version that the next save of this artifact gets."""
    newest = await connection.scalar(
        sa.select(sa.func.max(artifacts.c.version)).where(of_key(key, ARTIFACT, name))
    )
    return 0 if newest is None else newest + 1


async def save_once(connection: AsyncConnection, key: SessionKey, new: NewArtifact) -> int:
    """Write a new version, or find the one that the same call saved; returns its number."""
    if new.call_id is not None:
        of_call = (of_key(key, ARTIFACT, new.name), artifacts.c.call_id == new.call_id)
        saved = sa.select(artifacts.c.version).where(*of_call).limit(1)
        version: int | None = await connection.scalar(saved)
        if version is not None:
            return version
    return await add_version(connection, key, new)


async def add_version(connection: AsyncConnection, key: SessionKey, new: NewArtifact) -> int:
    """Write a new version with its chunks; returns its number.

    If another transaction takes the number first, the insert waits for its end, and tries the next
    number: two turns may save an artifact of their user at the same time.
    """
    while True:
        version = await next_version(connection, key, new.name)
        if await insert_artifact(connection, key, new, version):
            return version


async def insert_artifact(
    connection: AsyncConnection, key: SessionKey, new: NewArtifact, version: int
) -> bool:
    """Write one version with its chunks; False, without a write, if the version exists.

    InvalidIdError if the name is too long.
    """
    check_key("artifact name", *key.columns, new.name)
    content = new.content
    object_key = _referable(content).key if isinstance(content, ObjectContent) else None
    pk = await connection.scalar(
        upsert(connection, artifacts)
        .on_conflict_do_nothing()
        .values(
            **key.of_part,
            kind=new.kind,
            name=new.name,
            version=version,
            mime_type=new.mime_type,
            size=content.size,
            sha256=content.sha256,
            object_key=object_key,
            call_id=new.call_id,
            part=new.part,
            metadata=new.metadata,
            created=now(connection),
        )
        .returning(artifacts.c.pk)
    )
    if pk is None:
        return False
    for number, data in enumerate(content.chunks()):
        chunk = {"artifact_pk": pk, "number": number, "data": data}
        await connection.execute(sa.insert(artifact_chunks), chunk)
    return True


def _referable(content: ObjectContent) -> ObjectContent:
    """The content; StoreError if the sweep may take its object for one that gets no row."""
    if content.age > _ROW_WITHIN:
        raise StoreError("The file was stored too long before its row. Save it again.")
    return content


async def find_version(
    connection: AsyncConnection,
    key: SessionKey,
    name: str,
    version: int | None,
    kind: str = ARTIFACT,
    *,
    locked: bool = False,
) -> sa.Row[Any] | None:
    """One version's row, by default the newest; `locked` against deletion, to copy it."""
    statement = sa.select(*ROW).where(of_key(key, kind, name))
    if version is not None:
        statement = statement.where(artifacts.c.version == version)
    if locked:
        statement = statement.with_for_update(read=True, key_share=True)
    return (
        await connection.execute(statement.order_by(artifacts.c.version.desc()).limit(1))
    ).one_or_none()


async def read_contents(
    connection: AsyncConnection, rows: Sequence[sa.Row[Any]]
) -> dict[int, bytes | ObjectContent]:
    """The contents of versions, by the keys of their rows: bytes, or where the object is."""
    stored: dict[int, bytes | ObjectContent] = {
        row.pk: ObjectContent(row.object_key, row.size, row.sha256)
        for row in rows
        if row.object_key is not None
    }
    return stored | await _read_chunks(connection, [row.pk for row in rows if row.pk not in stored])


async def _read_chunks(connection: AsyncConnection, pks: Sequence[int]) -> dict[int, bytes]:
    chunks_by_pk: dict[int, list[bytes]] = {pk: [] for pk in pks}
    if pks:
        rows = await connection.execute(
            sa.select(artifact_chunks.c.artifact_pk, artifact_chunks.c.data)
            .where(artifact_chunks.c.artifact_pk.in_(pks))
            .order_by(artifact_chunks.c.artifact_pk, artifact_chunks.c.number)
        )
        for pk, data in rows:
            chunks_by_pk[pk].append(data)
    return {pk: b"".join(chunks) for pk, chunks in chunks_by_pk.items()}


async def save_blobs(connection: AsyncConnection, key: SessionKey, blobs: Iterable[Blob]) -> None:
    """Write the data that was moved out of an event; idempotent."""
    for blob in blobs:
        if await find_version(connection, key, blob.name, 0, blob.kind) is None:
            new = NewArtifact(blob.name, blob.data, blob.part, blob.mime_type, kind=blob.kind)
            await insert_artifact(connection, key, new, 0)


async def read_blobs(
    connection: AsyncConnection, key: SessionKey, names: Sequence[str]
) -> dict[str, bytes | ObjectContent]:
    """The contents that were moved out of events, by name."""
    statement = sa.select(*ROW).where(of_key(key, EVENT_DATA), artifacts.c.name.in_(names))
    rows = (await connection.execute(statement)).all()
    contents = await read_contents(connection, rows)
    return {row.name: contents[row.pk] for row in rows}


async def restore_version(
    connection: AsyncConnection, key: SessionKey, name: str, version: int | None
) -> int | None:
    """Save an old version as the newest, or an empty one if there was none; returns its number.

    None if the artifact is not stored here.
    """
    if await find_version(connection, key, name, None) is None:
        return None
    old = None
    if version is not None:
        old = await find_version(connection, key, name, version, locked=True)
    new = NewArtifact(name, b"", HIDDEN_PART, HIDDEN_TYPE)
    if old is not None:
        data = (await read_contents(connection, [old]))[old.pk]
        new = NewArtifact(name, data, old.part, old.mime_type, old.about)
    return await add_version(connection, key, new)


async def refill_version(
    connection: AsyncConnection, key: SessionKey, name: str, version: int, *, into: int
) -> None:
    """Put an old version's data into the version that hides it, unless that one has data."""
    hiding = await find_version(connection, key, name, into)
    old = await find_version(connection, key, name, version, locked=True)
    if hiding is None or old is None or hiding.size > 0 or old.size == 0:
        return
    data = (await read_contents(connection, [old]))[old.pk]
    await delete_artifacts(connection, artifacts.c.pk == hiding.pk)
    new = NewArtifact(name, data, old.part, old.mime_type, old.about)
    await insert_artifact(connection, key, new, into)


async def delete_artifacts(connection: AsyncConnection, condition: sa.ColumnElement[bool]) -> None:
    """Delete artifacts with their chunks, and put their objects in the queue of deletions."""
    doomed = sa.select(artifacts.c.pk).where(condition)
    await connection.execute(
        sa.delete(artifact_chunks).where(artifact_chunks.c.artifact_pk.in_(doomed))
    )
    deleted = sa.delete(artifacts).where(condition).returning(artifacts.c.object_key)
    keys = {key for key in (await connection.execute(deleted)).scalars() if key is not None}
    if keys:
        queue = upsert(connection, object_deletions).on_conflict_do_nothing()
        await connection.execute(queue, [{"key": key} for key in sorted(keys)])
