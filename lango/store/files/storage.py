"""Where the bytes of files are: in the object store of the settings, else in the database.

An object is stored before the transaction that writes its row, and deleted after the one that
deletes its last row. So a row always has its object, and a kill leaves at most an object without a
row, which `cleanup.py` deletes. Copies of a row refer to the same object.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import AsyncGenerator, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from lango.core.failpoints import failpoint
from lango.core.ids import new_id
from lango.errors import ConfigError, UnknownFileError
from lango.store.db.clock import now
from lango.store.db.retry import retrying
from lango.store.db.upserts import upsert
from lango.store.files.contents import CHUNK, Content, ObjectContent
from lango.store.files.objects import READ, ObjectStore
from lango.store.schema.tables import artifact_chunks, object_store

if TYPE_CHECKING:
    from lango.store.db.database import Database
    from lango.store.files.rows import NewArtifact
    from lango.store.sessions.entries import Entry

T = TypeVar("T")

_AT_A_TIME: Final = 8
"""Objects of one history that are read concurrently."""
_TENANT_LETTERS: Final = 16


async def stored(database: Database, tenant: str, content: Content) -> Content:
    """The content, in the object store if there is one; call it before the transaction."""
    objects = database.objects
    if objects is None or not content.size or isinstance(content, ObjectContent):
        return content
    folder = await _folder(database, objects)
    owner = hashlib.sha256(tenant.encode()).hexdigest()[:_TENANT_LETTERS]
    key = f"{folder}/{owner}/{new_id('obj')}"
    since = time.time()
    await retrying(partial(objects.put, key, content))
    failpoint("object.stored")
    return ObjectContent(key, content.size, content.sha256, since)


async def stored_artifact(database: Database, tenant: str, new: NewArtifact) -> NewArtifact:
    """The same for a version of an artifact."""
    return replace(new, data=await stored(database, tenant, new.content))


async def stored_entry(database: Database, tenant: str, entry: Entry) -> Entry:
    """The same for the data that was moved out of an event."""
    if database.objects is None or not entry.blobs:
        return entry
    blobs = [
        replace(blob, data=await stored(database, tenant, blob.content)) for blob in entry.blobs
    ]
    return replace(entry, blobs=tuple(blobs))


async def chunks(
    database: Database, pk: int, object_key: str | None, start: int, end: int
) -> AsyncGenerator[bytes]:
    """Bytes of a version, up to CHUNK at a time; UnknownFileError if it is deleted meanwhile.

    Neither a transaction nor a request stays open while a slow client reads them.
    """
    if object_key is not None:
        async for piece in _object(database, object_key, start, end):
            yield piece
        return
    for number in range(start // CHUNK, -(-end // CHUNK)):
        data = await database.read(_chunk, pk, number)
        if data is None:
            raise UnknownFileError
        offset = number * CHUNK
        yield data[max(start - offset, 0) : end - offset]


async def loaded(database: Database, contents: Mapping[T, bytes | ObjectContent]) -> dict[T, bytes]:
    """The bytes of several contents; without those that are deleted meanwhile."""
    slots = asyncio.Semaphore(_AT_A_TIME)

    async def load(name: T, content: bytes | ObjectContent) -> tuple[T, bytes] | None:
        if isinstance(content, bytes):
            return name, content
        async with slots:
            try:
                pieces = [piece async for piece in _object(database, content.key, 0, content.size)]
            except UnknownFileError:
                return None
        return name, b"".join(pieces)

    pairs = await asyncio.gather(*(load(*item) for item in contents.items()))
    return dict(item for item in pairs if item is not None)


async def _chunk(connection: AsyncConnection, artifact_pk: int, number: int) -> bytes | None:
    of_chunk = (artifact_chunks.c.artifact_pk == artifact_pk, artifact_chunks.c.number == number)
    return await connection.scalar(sa.select(artifact_chunks.c.data).where(*of_chunk))


async def _object(database: Database, key: str, start: int, end: int) -> AsyncGenerator[bytes]:
    objects = database.objects
    if objects is None:
        raise ConfigError(
            "The file is in an object store. Set `files.objects` to the one that has it."
        )
    for position in range(start, end, READ):
        data = await retrying(partial(objects.read, key, position, min(position + READ, end)))
        if data is None:
            raise UnknownFileError
        for offset in range(0, len(data), CHUNK):
            yield bytes(data[offset : offset + CHUNK])


async def _folder(database: Database, objects: ObjectStore) -> str:
    """The database's folder: databases may share a bucket, and each sweeps its own objects."""
    if objects.folder is None:
        objects.folder = await database.write(_named)
    return objects.folder


async def _named(connection: AsyncConnection) -> str:
    row = {"number": 1, "folder": new_id("db"), "swept": now(connection)}
    insert = upsert(connection, object_store).on_conflict_do_nothing().values(row)
    await connection.execute(insert)
    return (await connection.execute(sa.select(object_store.c.folder))).scalar_one()
