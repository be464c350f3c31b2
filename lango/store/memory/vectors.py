"""Embeddings of entries, on PostgreSQL: which entries lack one, and which are near a query.

They are stored as arrays, so the tables need no extension; a search casts them to pgvector's type.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from lango.store.db.database import Database
from lango.store.db.engines import quoted
from lango.store.db.statement import Prepared, Transaction
from lango.store.schema.tables import memories
from lango.store.sessions.entries import SessionKey

Vector = Sequence[float]

NEWEST: Final = 2_000
"""The newest entries of a user that a search compares with the query."""
NEAREST: Final = 100
"""The entries nearest to a query that a search ranks."""
BATCH: Final = 64
"""Entries that a worker claims at a time."""
MAX_EMBEDDED: Final = 6_000
"""Characters of a text that are embedded: models take about 8,000 tokens, and some fewer."""
CLAIM_LASTS: Final = 300.0
"""Seconds after which another worker may claim an entry that has still no embedding."""

_EXTENSION: Final = Prepared(
    sa.text("""
select n.nspname from pg_extension as e join pg_namespace as n on n.oid = e.extnamespace
where e.extname = 'vector'
""").columns(nspname=sa.Text)
)
# Of each half of the index the first rows alone: an entry of another model has to be embedded anew.
_PENDING: Final = """
select pk from (
  select pk from memories
  where app_name = :app_name and embedding_model {operator} :model and text <> ''
    and (embedding_claimed is null or embedding_claimed < now() - make_interval(secs => :lasts))
  order by embedding_model, pk desc limit :most for update skip locked
) as pending_{name}
"""
CLAIM_STATEMENT: Final = sa.text(f"""
update memories set embedding_claimed = now() where pk = any(array(
  {_PENDING.format(operator="<", name="first")}
  union all {_PENDING.format(operator=">", name="last")}
  limit :most
)) returning pk, substr(text, 1, {MAX_EMBEDDED}) as text
""").bindparams(  # noqa: S608 - of constants
    sa.bindparam("lasts", type_=sa.Double), sa.bindparam("most", type_=sa.BigInteger)
)
_CLAIM: Final = Prepared(CLAIM_STATEMENT.columns(pk=sa.BigInteger, text=sa.Text))
_OF_ENTRY: Final = sa.and_(
    memories.c.pk == sa.bindparam("of_pk"),
    memories.c.text != sa.literal_column("''"),  # it was not deleted meanwhile
)
_ADD: Final = Prepared(sa.update(memories).where(_OF_ENTRY))
_RELEASE: Final = Prepared(
    sa.update(memories)
    .where(memories.c.pk == sa.any_(sa.bindparam("pks", type_=postgresql.ARRAY(sa.BigInteger))))
    .values(embedding_claimed=None)
)
# An expression keeps the planner on the index of users: the other one finds the app's entries.
# `offset 0` keeps the cast from being done twice: it reads the whole vector.
_NEAREST: Final = """
select pk from (
  select pk, embedding from memories
  where tenant = :tenant and app_name = :app_name and user_id = :user_id
    and embedding_model || '' = :model
  order by pk desc limit :newest
) as entries
cross join lateral (select cast(embedding as {schema}.vector) as vector offset 0) as compared
where {schema}.vector_dims(vector) = cardinality(cast(:vector as real[]))
order by vector operator({schema}.<=>) cast(cast(:vector as real[]) as {schema}.vector), pk desc
limit :nearest
"""


class PendingEntry(NamedTuple):
    """An entry without an embedding, claimed by a worker."""

    pk: int
    text: str


@dataclass(frozen=True, slots=True)
class QueryVector:
    """The embedding of a query, and the model that made it."""

    model: str
    vector: Vector


class EntryVectors:
    """The embeddings of entries; without PostgreSQL's extension `vector` there are none."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._schema: str | None = None  # of the extension

    async def are_supported(self) -> bool:
        """Whether the database can compare embeddings."""
        return await self._found_schema() is not None

    async def _found_schema(self) -> str | None:
        if self._schema is None and not self._database.is_sqlite:
            rows = await self._database.read(_EXTENSION)
            self._schema = rows[0].nspname if rows else None
        return self._schema

    async def claim(self, app_name: str, model: str, most: int = BATCH) -> list[PendingEntry]:
        """Claim entries of an app, of all its users, that have no embedding by this model."""
        values = {"app_name": app_name, "model": model, "lasts": CLAIM_LASTS, "most": most}
        rows = await self._database.write(_CLAIM, **values)
        return [PendingEntry(row.pk, row.text) for row in rows]

    async def add(self, model: str, vectors: Mapping[int, Vector]) -> None:
        """Store the embeddings of entries, except of those that were deleted meanwhile."""
        values = [
            {
                "of_pk": pk,
                "embedding": list(vectors[pk]),
                "embedding_model": model,
                "embedding_claimed": None,
            }
            for pk in sorted(vectors)
        ]

        async def once(transaction: Transaction) -> None:
            await transaction.each(_ADD, values)

        if values:
            await self._database.transact(once)

    async def release(self, entries: Sequence[PendingEntry]) -> None:
        """Let any worker claim these entries."""
        await self._database.write(_RELEASE, pks=[entry.pk for entry in entries])

    async def nearest(self, user: SessionKey, query: QueryVector) -> list[int]:
        """The user's entries nearest to a query, the nearest first; none without the extension."""
        schema = await self._found_schema()
        if schema is None:
            return []
        values = {
            **user.of_user,
            "model": query.model,
            "vector": list(query.vector),
            "newest": NEWEST,
            "nearest": NEAREST,
        }
        return [row.pk for row in await self._database.read(_nearest(schema), **values)]


def nearest_statement(schema: str) -> sa.TextClause:
    """The search of entries near a vector; `schema` has the extension's type and operator."""
    vector = sa.bindparam("vector", type_=postgresql.ARRAY(sa.REAL))
    return sa.text(_NEAREST.format(schema=quoted(schema))).bindparams(vector)


@lru_cache(maxsize=8)
def _nearest(schema: str) -> Prepared:
    return Prepared(nearest_statement(schema).columns(pk=sa.BigInteger))
