"""The hold of a database: while it is held, no worker registers, so none claims a turn.

An operator sets it and releases it. A database that was made from a dump of another one is held
until its first release: its turns were accepted elsewhere, and perhaps run on there.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from lango.core.times import moment
from lango.errors import DatabaseHeldError
from lango.store.db.clock import now, seconds
from lango.store.db.database import Database
from lango.store.db.upserts import upsert
from lango.store.schema.tables import installation

_KEY: Final = 1
_RELEASE: Final = "When you have seen to its turns, run `lango db release`."
# A dump keeps neither the number of its database nor that of a table; an upgrade of the server by
# pg_upgrade and a failover keep both. SQLite has nothing like it: a copied file is the same file.
_HERE: Final = sa.literal_column(
    "(select oid from pg_database where datname = current_database()) || '.' || "
    "installation.tableoid",
    sa.Text,
)
_HERE_ON_SQLITE: Final = sa.literal_column("''", sa.Text)


@dataclass(frozen=True, slots=True)
class Hold:
    """Why a database is held."""

    since: datetime | None  # when an operator held it
    is_copy: bool  # it was restored from a dump, and not released since

    def __str__(self) -> str:
        if self.is_copy:
            return f"This database was restored from a dump, so no turn runs in it. {_RELEASE}"
        return f"An operator holds this database, so no turn runs in it. {_RELEASE}"


def is_released(*, on_sqlite: bool = False) -> sa.ColumnElement[bool]:
    """The condition that the database is not held."""
    server_identity = _HERE_ON_SQLITE if on_sqlite else _HERE
    of_here = installation.c.held.is_(None), installation.c.identity == server_identity
    return sa.exists(sa.select(installation.c.pk).where(*of_here).correlate(None))


async def read_hold(database: Database) -> Hold | None:
    """The hold of a database; None if it is not held."""
    return await database.read(hold_of)


async def hold_of(connection: AsyncConnection) -> Hold | None:
    """The same, on a connection."""
    is_copy = installation.c.identity != _here(connection)
    statement = sa.select(installation.c.held, is_copy.label("is_copy"))
    row = (await connection.execute(statement)).one_or_none()
    if row is None:  # a dump without this table's row
        return Hold(None, is_copy=True)
    if row.held is None and not row.is_copy:
        return None
    return Hold(None if row.held is None else moment(seconds(row.held)), bool(row.is_copy))


async def require_released(connection: AsyncConnection) -> None:
    """DatabaseHeldError if the database is held."""
    hold = await hold_of(connection)
    if hold is not None:
        raise DatabaseHeldError(str(hold))


async def hold_database(database: Database) -> None:
    """Hold the database: no turn begins, and those that run may end (idempotent)."""

    async def once(connection: AsyncConnection) -> None:
        since = sa.func.coalesce(installation.c.held, now(connection))
        await connection.execute(sa.update(installation).values(held=since))

    await database.write(once)


async def release_database(database: Database) -> bool:
    """Let workers claim turns; False if it was not held."""

    async def once(connection: AsyncConnection) -> bool:
        if await hold_of(connection) is None:
            return False
        first = upsert(connection, installation).values(pk=_KEY, identity="", held=None)
        await connection.execute(first.on_conflict_do_nothing())
        values: dict[str, Any] = {"identity": _here(connection), "held": None}
        await connection.execute(sa.update(installation).values(values))
        return True

    return await database.write(once)


def _here(connection: AsyncConnection) -> sa.ColumnElement[str]:
    return _HERE_ON_SQLITE if connection.dialect.name == "sqlite" else _HERE
