"""How much of the database a tenant uses."""

from __future__ import annotations

from typing import Final

import sqlalchemy as sa

from lango.store.db.database import Database
from lango.store.db.statement import Prepared
from lango.store.schema.tables import artifacts, sessions, turns

_open_turns = (
    sa.select(turns.c.number)
    .where(turns.c.tenant == sa.bindparam("in_tenant"), turns.c.ended.is_(None))
    .limit(sa.bindparam("most", type_=sa.Integer()))
    .subquery()
)
_COUNT_OPEN: Final = Prepared(sa.select(sa.func.count().label("open")).select_from(_open_turns))


async def count_open_turns(database: Database, tenant: str, limit: int) -> int:
    """The tenant's turns that have not ended, counted up to `limit`."""
    (row,) = await database.read(_COUNT_OPEN, in_tenant=tenant, most=limit)
    return row.open


async def sum_file_bytes(database: Database, tenant: str) -> int:
    """The size of all versions of the tenant's artifacts, including uploaded files."""
    total = sa.select(sa.func.sum(artifacts.c.size)).where(artifacts.c.tenant == tenant)
    return int(await database.read(lambda connection: connection.scalar(total)) or 0)


async def sum_history_tokens(database: Database, tenant: str) -> int:
    """The estimated tokens in all sessions of the tenant."""
    total = sa.select(sa.func.sum(sessions.c.total_tokens)).where(sessions.c.tenant == tenant)
    return int(await database.read(lambda connection: connection.scalar(total)) or 0)
