"""Texts that many requests share: system prompts and tool declarations, stored once per tenant.

A part may hold values of a session's state, so it must not outlive the sessions that sent it.
Every session has a link to each of its parts; the delete of the last link deletes the part. A
writer locks the part before it adds its link, and a delete locks it before it looks for links, so
that neither misses the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from lango.core.values import storable_text
from lango.store.db.clock import now
from lango.store.db.database import Database
from lango.store.db.retry import retrying
from lango.store.db.upserts import upsert
from lango.store.schema.tables import prompt_part_sessions, prompt_parts

_AT_ONCE: Final = 500  # the arguments of a statement are limited
ELSEWHERE: Final = 0
"""The primary key that stands for the tenant's sessions in another database."""


# For PostgreSQL: writes and links the parts of one session. It waits only for a transaction that is
# writing the same part. It cannot see a part that was written since it began. Returns how many
# parts it has linked; nothing if the session is locked or deleted.
_ADD: Final = """
with s as (
  select pk from sessions where pk = $1 and tenant = $2 for key share skip locked
), p as (
  insert into prompt_parts (tenant, hash, kind, text, created)
  select $2, n.hash, n.kind, n.text, now()
  from s, unnest($3::text[], $4::text[], $5::text[]) as n(hash, kind, text)
  order by n.hash
  on conflict do nothing
  returning hash
), h as (
  select hash from prompt_parts
  where tenant = $2 and hash = any($3) and (select count(*) from p) >= 0
  order by hash for key share skip locked
), l as (
  insert into prompt_part_sessions (session_pk, tenant, hash)
  select s.pk, $2, parts.hash from s, (select hash from p union all select hash from h) as parts
  on conflict do nothing
)
select (select count(*) from p) + (select count(*) from h) from s"""


class PartLink(NamedTuple):
    """A session that has sent a part."""

    session_pk: int
    tenant: str
    hash: str


async def read(connection: AsyncConnection, tenant: str, hashed: str) -> str | None:
    """The text with this hash; None if the tenant has not sent it to a model."""
    conditions = (prompt_parts.c.tenant == tenant, prompt_parts.c.hash == hashed)
    return await connection.scalar(sa.select(prompt_parts.c.text).where(*conditions))


async def add(connection: AsyncConnection, parts: Mapping[PartLink, tuple[str, str]]) -> None:
    """Write parts, each with its kind and text, and link them to their sessions.

    The sessions must be locked: a link that is written after its session's delete stays for ever.
    """
    texts = {(link.tenant, link.hash): text for link, text in parts.items()}
    missing = set(texts)
    while missing:
        rows = [
            {"tenant": tenant, "hash": hashed, "kind": kind, "text": storable_text(text)}
            for (tenant, hashed), (kind, text) in sorted(texts.items())  # lock in one order
            if (tenant, hashed) in missing
        ]
        new = upsert(connection, prompt_parts).on_conflict_do_nothing()
        await connection.execute(new.values(created=now(connection)), rows)
        # A part that was there already may be deleted before it is locked: then write it again.
        missing -= await _lock_existing(connection, missing)
    links = upsert(connection, prompt_part_sessions).on_conflict_do_nothing()
    await connection.execute(links, [link._asdict() for link in sorted(parts)])


async def add_at_once(database: Database, parts: Mapping[PartLink, tuple[str, str]]) -> bool:
    """Write and link one session's parts in one statement; False if it did not link them all."""
    session_pk, tenant, _ = next(iter(parts))
    hashes = [link.hash for link in parts]
    kinds, texts = zip(*parts.values(), strict=True)
    stored = list(map(storable_text, texts))
    arguments = (session_pk, tenant, hashes, list(kinds), stored)
    linked = await retrying(lambda: database.fetch(_ADD, *arguments))
    return [tuple(row) for row in linked] == [(len(parts),)]


async def _lock_existing(
    connection: AsyncConnection, names: set[tuple[str, str]]
) -> set[tuple[str, str]]:
    name = sa.tuple_(prompt_parts.c.tenant, prompt_parts.c.hash)
    statement = sa.select(prompt_parts.c.tenant, prompt_parts.c.hash).where(name.in_(sorted(names)))
    statement = statement.order_by(prompt_parts.c.tenant, prompt_parts.c.hash)
    rows = await connection.execute(statement.with_for_update(read=True, key_share=True))
    return {(row.tenant, row.hash) for row in rows}


async def delete(connection: AsyncConnection, tenant: str, session_pk: int) -> None:
    """Delete a locked session's links, and the parts that no other session links to."""
    links = prompt_part_sessions
    of_session = (links.c.session_pk == session_pk, links.c.tenant == tenant)
    hashes = sorted(await connection.scalars(sa.select(links.c.hash).where(*of_session)))
    await connection.execute(sa.delete(links).where(*of_session))
    is_linked = sa.exists().where(links.c.tenant == tenant, links.c.hash == prompt_parts.c.hash)
    for first in range(0, len(hashes), _AT_ONCE):
        batch = prompt_parts.c.hash.in_(hashes[first : first + _AT_ONCE])
        these = (prompt_parts.c.tenant == tenant, batch)
        locked = sa.select(prompt_parts.c.hash).where(*these).order_by(prompt_parts.c.hash)
        await connection.execute(locked.with_for_update())
        await connection.execute(sa.delete(prompt_parts).where(*these, ~is_linked))
