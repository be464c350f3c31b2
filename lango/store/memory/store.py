"""The memory of users: add, search, delete. Words and ranking are in `core/memory.py`."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql
from sqlalchemy.ext.asyncio import AsyncConnection

from lango.core.memory import MAX_QUERY_WORDS, MAX_TEXT, fused, query_words, ranked
from lango.core.values import JsonObject, json_text
from lango.store.db.database import Database
from lango.store.db.statement import Prepared, Row, Transaction
from lango.store.db.upserts import upsert
from lango.store.memory import rows as memory_rows
from lango.store.memory.rows import TurnText, owner_of, terms_of, with_terms
from lango.store.memory.vectors import EntryVectors, QueryVector
from lango.store.schema.tables import memories, messages, sessions
from lango.store.sessions.append import missing
from lango.store.sessions.entries import SessionKey, SessionRef
from lango.store.sessions.load import key_is

MAX_SHOWN: Final = 4_000
"""Characters of an entry that a search returns: models read them all."""
HITS: Final = 500
"""The newest entries with a word that a search ranks."""
_PAGE: Final = 100
"""Messages of a session that are added at a time."""

# Looked up for each message: with stale statistics, PostgreSQL makes an anti-join a nested loop.
_ENTRY: Final = (
    sa.select(memories.c.pk)
    .where(
        memories.c.session_pk == messages.c.session_pk, memories.c.event_id == messages.c.event_id
    )
    .limit(1)
    .correlate(messages)
    .scalar_subquery()
)
_NEW_TEXTS: Final = (
    sa.select(messages.c.seq, memory_rows.TEXT)
    .where(
        memory_rows.OF_SESSION,
        memory_rows.IS_SAID,
        messages.c.seq > sa.bindparam("after"),
        _ENTRY.is_(None),
    )
    .order_by(messages.c.seq)
    .limit(_PAGE)
)
_HOLD_SESSION: Final = Prepared(
    sa.select(sessions.c.pk)
    .where(sessions.c.pk == sa.bindparam("of_session"))
    .with_for_update(read=True, key_share=True)
)
# Two expressions keep a planner on the index of words: by the order of the key it might read the
# whole table to find 500 rows, and by the names it would make words of every entry of the user.
HITS_STATEMENT: Final = sa.text("""
select w.number, array_agg(m.pk) as pks
from unnest(cast(:queries as text[])) with ordinality as w(query, number)
cross join lateral (
  select pk from memories
  where tenant || '' = :tenant and app_name = :app_name and user_id = :user_id
    and array_to_tsvector(string_to_array(terms, ' ')) @@ cast(w.query as tsquery)
  order by pk + 0 desc limit :hits
) as m group by w.number
""").bindparams(sa.bindparam("queries", type_=postgresql.ARRAY(sa.Text)))
_HITS: Final = Prepared(
    HITS_STATEMENT.columns(number=sa.BigInteger, pks=postgresql.ARRAY(sa.BigInteger))
)
# The word of the owner keeps out the entries of others; what is shown compares the names as well.
_HITS_OF_ONE: Final = """
select {number} as number, group_concat(pk) as pks from (
  select rowid as pk from memory_words where memory_words match :query_{number}
  order by rowid desc limit :hits
)
"""
_IS_THERE: Final = memories.c.text != sa.literal_column("''")
"""Entries that were not deleted."""
_SHOWN: Final = sa.select(
    *(memories.c.pk, sessions.c.public_id, memories.c.session_id, memories.c.event_id),
    *(memories.c.author, memories.c.role, memories.c.timestamp),
    sa.func.substr(memories.c.text, 1, MAX_SHOWN + 1).label("text"),
    memories.c.metadata.label("about"),  # SQLAlchemy's rows reserve the name `metadata`
).join_from(memories, sessions, sessions.c.pk == memories.c.session_pk, isouter=True)
_OF_OWNER: Final = _SHOWN.where(
    *(memories.c[name] == sa.bindparam(name) for name in ("tenant", "app_name", "user_id")),
    _IS_THERE,
)
_ANY_OF: Final = sa.any_(sa.bindparam("best", type_=postgresql.ARRAY(sa.BigInteger)))
_IN_JSON: Final = sa.func.json_each(sa.bindparam("best", type_=sa.Text)).table_valued("value")
_BEST: Final = Prepared(
    _OF_OWNER.where(memories.c.pk == _ANY_OF),
    on_sqlite=_OF_OWNER.where(memories.c.pk.in_(sa.select(_IN_JSON.c.value))),
)


@dataclass(frozen=True, slots=True)
class NewMemory:
    """An entry that comes from no stored message."""

    event_id: str
    author: str
    role: str
    timestamp: float
    text: str
    metadata: JsonObject | None = None


@dataclass(frozen=True, slots=True)
class FoundMemory:
    """An entry that a search or a list returns; its text is cut after MAX_SHOWN characters."""

    pk: int
    public_id: str | None  # of its session, if that is in this database
    session_id: str
    event_id: str
    author: str
    role: str
    timestamp: float
    text: str
    metadata: JsonObject | None


class SqlMemoryStore:
    """The memory of users, by tenant and app. Every operation may be repeated after a fault."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.vectors = EntryVectors(database)

    async def add_session(self, ref: SessionRef) -> None:
        """Remember all messages of a session; SessionNotFoundError if it was deleted."""
        pk = ref.pk or await self._database.read(_find_session, ref.key)
        if pk is None:
            raise missing(ref)

        async def once(transaction: Transaction, texts: Sequence[TurnText]) -> None:
            if await transaction.one(_HOLD_SESSION, of_session=pk) is None:
                raise missing(ref)
            await memory_rows.remember(transaction, pk, texts)

        last = 0
        while rows := await self._database.read(_new_texts, pk, last):
            texts = await with_terms(ref.key, rows)
            await self._database.transact(once, texts, session=ref.key)
            last = rows[-1].seq

    async def add(
        self,
        ref: SessionRef,
        entries: Sequence[NewMemory],
        *,
        requires_session: bool = False,
        added_in: SessionRef | None = None,
    ) -> None:
        """Remember texts of a session, or of its user if the key's session id is empty.

        Locks a session of this database meanwhile, so that its deletion finds the entries. With
        `requires_session`, SessionNotFoundError if there is none; else it may be stored elsewhere.
        `added_in` is the session whose turn adds them: SessionNotFoundError if it was deleted.
        """
        for first in range(0, len(entries), _PAGE):
            await self._database.write(
                _add,
                ref,
                entries[first : first + _PAGE],
                requires_session,
                added_in,
                session=ref.key,
                is_long=True,
            )

    async def search(
        self,
        user: SessionKey,
        query: str,
        limit: int,
        *,
        skipped: int = 0,
        vector: QueryVector | None = None,
    ) -> list[FoundMemory]:
        """The entries of a user that have words of the query, the best first.

        `vector`, the query's embedding, also finds those that are near to it. `skipped`: the number
        of best entries to leave out, for a page after the first.
        """
        best = (await self._ranking(user, query, vector))[skipped : skipped + limit]
        if not best:
            return []
        listed = json_text(best) if self._database.is_sqlite else best
        rows = await self._database.read(_BEST, best=listed, **user.of_user)
        rows_by_pk = {row.pk: row for row in rows}  # others may delete an entry meanwhile
        return [_found(rows_by_pk[pk]) for pk in best if pk in rows_by_pk]

    async def _ranking(self, user: SessionKey, query: str, vector: QueryVector | None) -> list[int]:
        """All entries that a search finds, the best first."""
        hits = self._hits(user, query_words(query))
        if vector is None:
            return ranked(await hits)
        found, nearest = await asyncio.gather(hits, self.vectors.nearest(user, vector))
        return fused((ranked(found), nearest))

    async def _hits(self, user: SessionKey, words: Sequence[str]) -> dict[str, list[int]]:
        """The newest entries that have each word."""
        if not words:
            return {}
        if self._database.is_sqlite:
            return await self._database.read(_hits_on_sqlite, user, words)
        queries = [f"'{owner_of(user)}' & '{word}'" for word in words]  # no word has a quote
        values = {**user.of_user, "hits": HITS, "queries": queries}
        rows = await self._database.read(_HITS, **values)
        return {words[int(row.number) - 1]: row.pks for row in rows}

    async def page(
        self, user: SessionKey, limit: int, *, before: int | None = None
    ) -> list[FoundMemory]:
        """The entries of a user, the newest first; `before` is the pk of the last one seen."""
        return await self._database.read(_page, user, limit, before)

    async def delete(
        self, tenant: str, pk: int, *, app_name: str | None = None, user_id: str | None = None
    ) -> bool:
        """Delete an entry of a tenant; its message is not remembered again.

        With an app or a user, only an entry of theirs. False if there is no such entry.
        """
        names = {"tenant": tenant, "app_name": app_name, "user_id": user_id}
        conditions = [
            memories.c[name] == value for name, value in names.items() if value is not None
        ]
        conditions.append(memories.c.pk == pk)
        return await self._database.write(_forget, conditions, is_long=True) > 0

    async def delete_all(self, user: SessionKey) -> int:
        """Delete all entries of a user in an app; returns their number.

        The messages stay in their sessions and are not remembered again.
        """
        return await self._database.write(_forget, [_is_of(user)], is_long=True)


def _is_of(key: SessionKey) -> sa.ColumnElement[bool]:
    return sa.and_(*(memories.c[name] == value for name, value in key.of_user.items()))


async def _find_session(connection: AsyncConnection, key: SessionKey) -> int | None:
    return await connection.scalar(sa.select(sessions.c.pk).where(key_is(key)))


async def _new_texts(connection: AsyncConnection, pk: int, after: int) -> list[Row]:
    return list(await connection.execute(_NEW_TEXTS, {"of_session": pk, "after": after}))


async def _add(
    connection: AsyncConnection,
    ref: SessionRef,
    entries: Sequence[NewMemory],
    requires_session: bool,
    added_in: SessionRef | None,
) -> None:
    key = ref.key
    if added_in is not None and await _held_session(connection, added_in) is None:
        raise missing(added_in)
    session_pk = await _held_session(connection, ref) if key.session_id else None
    is_missing = ref.pk is not None or requires_session
    if key.session_id and session_pk is None and is_missing:
        raise missing(ref)
    rows = [
        {
            **key.of_user,
            "session_pk": session_pk,
            "session_id": key.session_id,
            "event_id": entry.event_id,
            "author": entry.author,
            "role": entry.role,
            "timestamp": entry.timestamp,
            "text": entry.text[:MAX_TEXT],
            "terms": terms_of(key, entry.text),
            "metadata": entry.metadata,
        }
        for entry in entries
    ]
    await connection.execute(upsert(connection, memories).on_conflict_do_nothing(), rows)


async def _held_session(connection: AsyncConnection, ref: SessionRef) -> int | None:
    """Lock a session against deletion until the transaction ends; None if there is none."""
    conditions = [key_is(ref.key)] if ref.pk is None else [key_is(ref.key), sessions.c.pk == ref.pk]
    statement = sa.select(sessions.c.pk).where(*conditions)
    return await connection.scalar(statement.with_for_update(read=True, key_share=True))


async def _hits_on_sqlite(
    connection: AsyncConnection, user: SessionKey, words: Sequence[str]
) -> dict[str, list[int]]:
    owner = owner_of(user)
    values = {f"query_{n}": f'"{owner}" AND "{word}"' for n, word in enumerate(words, 1)}
    rows = await connection.execute(_hits_statement(len(words)), {**values, "hits": HITS})
    return {
        words[int(row.number) - 1]: list(map(int, row.pks.split(",")))
        for row in rows
        if row.pks is not None
    }


@lru_cache(maxsize=MAX_QUERY_WORDS)
def _hits_statement(words: int) -> sa.TextClause:
    """One statement for all words: each statement costs a trip to the thread of its connection."""
    return sa.text(" union all ".join(_HITS_OF_ONE.format(number=n + 1) for n in range(words)))


async def _page(
    connection: AsyncConnection, user: SessionKey, limit: int, before: int | None
) -> list[FoundMemory]:
    conditions = [_is_of(user), _IS_THERE]
    if before is not None:
        conditions.append(memories.c.pk < before)
    statement = _SHOWN.where(*conditions).order_by(memories.c.pk.desc()).limit(limit)
    return [_found(row) for row in await connection.execute(statement)]


def _found(row: Row) -> FoundMemory:
    text = row.text if len(row.text) <= MAX_SHOWN else f"{row.text[:MAX_SHOWN]}…"
    return FoundMemory(
        *(row.pk, row.public_id, row.session_id, row.event_id, row.author, row.role),
        *(row.timestamp, text, row.about),
    )


async def _forget(connection: AsyncConnection, conditions: Sequence[sa.ColumnElement[bool]]) -> int:
    """Delete entries; those of messages stay without their texts, so that they do not come back."""
    deletion = sa.delete(memories).where(*conditions, _IS_THERE, memories.c.session_id == "")
    blank = {
        **{"text": "", "terms": "", "author": "", "metadata": None},
        **{"embedding": None, "embedding_model": "", "embedding_claimed": None},
    }
    of_messages = sa.update(memories).where(*conditions, _IS_THERE).values(blank)
    deleted = (await connection.execute(deletion)).rowcount
    deleted += (await connection.execute(of_messages)).rowcount
    if deleted:
        await memory_rows.merge_words(connection)
    return deleted
