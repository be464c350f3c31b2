"""How much of the database a tenant uses."""

from __future__ import annotations

import sqlalchemy as sa

from lango.store.db.database import Database
from lango.store.schema.tables import artifacts, turns


async def count_open_turns(database: Database, tenant: str, most: int) -> int:
    """The tenant's turns that have not ended, counted up to `most`."""
    is_open = turns.c.tenant == tenant, turns.c.ended.is_(None)
    found = sa.select(turns.c.number).where(*is_open).limit(most).subquery()
    count = sa.select(sa.func.count()).select_from(found)
    return await database.read(lambda connection: connection.scalar(count)) or 0


async def sum_file_bytes(database: Database, tenant: str) -> int:
    """The size of all versions of the tenant's artifacts, including uploaded files."""
    total = sa.select(sa.func.sum(artifacts.c.size)).where(artifacts.c.tenant == tenant)
    return int(await database.read(lambda connection: connection.scalar(total)) or 0)
