"""Deletes objects that no row refers to: at once if their rows were deleted, else after a day.

Any number of processes may do this. No row gets the key of an object that has none: new objects
have new keys, and who copies a row locks it against deletion.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import timedelta
from typing import Final

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from lango.store.db.clock import NOW, ago
from lango.store.db.database import Database
from lango.store.db.statement import Prepared
from lango.store.files.objects import ObjectStore
from lango.store.schema.tables import artifacts, object_deletions, object_store

logger = logging.getLogger(__name__)

ORPHANED_AFTER: Final = timedelta(hours=24)
"""The age from which an object without a row is deleted: the row of a younger one may follow."""
SWEEP_EVERY: Final = timedelta(hours=24)
_PAGE: Final = 500

_CLAIM: Final = Prepared(
    sa.update(object_store)
    .where(object_store.c.swept <= ago("every"))
    .values(swept=NOW)
    .returning(object_store.c.folder)
)


class ObjectCleanup:
    """The deletion of a database's unused objects; idle if it has no object store."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def run(self) -> None:
        """Delete the objects of deleted rows; the first process in a day also sweeps."""
        objects = self._database.objects
        if objects is None:
            return
        await self._delete_queued(objects)
        claimed = await self._database.write(_CLAIM, every=SWEEP_EVERY)
        if claimed:
            await self._sweep(objects, claimed[0].folder, ORPHANED_AFTER)

    async def sweep(self, older_than: timedelta) -> int:
        """Delete objects that have no row, and had none for this long; returns how many."""
        objects, statement = self._database.objects, sa.select(object_store.c.folder)
        folder = await self._database.read(lambda connection: connection.scalar(statement))
        if objects is None or folder is None:
            return 0
        return await self._sweep(objects, folder, older_than)

    async def _delete_queued(self, objects: ObjectStore) -> None:
        after = ""
        while keys := await self._database.read(_queued, after):
            await self._delete_unused(objects, keys)
            deletion = sa.delete(object_deletions).where(object_deletions.c.key.in_(keys))
            await self._database.write(_execute, deletion)
            after = keys[-1]

    async def _sweep(self, objects: ObjectStore, folder: str, older_than: timedelta) -> int:
        deleted = 0
        async for keys in objects.older_than(folder, older_than):
            deleted += await self._delete_unused(objects, keys)
        if deleted:
            logger.info("Deleted %d objects that had no row.", deleted)
        return deleted

    async def _delete_unused(self, objects: ObjectStore, keys: Sequence[str]) -> int:
        unused = await self._database.read(_unused, keys) if keys else []
        if unused:
            await objects.delete(unused)
        return len(unused)


async def _queued(connection: AsyncConnection, after: str) -> list[str]:
    key = object_deletions.c.key
    statement = sa.select(key).where(key > after).order_by(key).limit(_PAGE)
    return list((await connection.execute(statement)).scalars())


async def _unused(connection: AsyncConnection, keys: Sequence[str]) -> list[str]:
    """Those of these keys that no row has."""
    statement = sa.select(artifacts.c.object_key).where(artifacts.c.object_key.in_(keys))
    used_keys = set((await connection.execute(statement)).scalars())
    return [key for key in keys if key not in used_keys]


async def _execute(connection: AsyncConnection, statement: sa.Delete) -> None:
    await connection.execute(statement)
