"""Memory: a search beside the bare SQL query that finds and ranks the same, on both databases."""

from __future__ import annotations

import random
import sqlite3
import tempfile
import time
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Final, TypeAlias
from zlib import crc32

import sqlalchemy as sa

from bench.measures import run
from bench.pg import connect, own_database
from bench.report import Table, millis
from bench.rounds import MIN_ROUNDS, Sample, cpu, divide, estimate, interleave, wall
from bench.targets import Finding, Result, Target, settle
from lango.core.memory import query_words
from lango.store.memory.rows import owner_of, terms_of
from lango.store.memory.store import HITS, MAX_SHOWN, SqlMemoryStore
from lango.store.memory.vectors import NEAREST, NEWEST, QueryVector
from lango.store.schema.migrate import upgrade
from lango.store.schema.tables import memories
from lango.store.sessions.entries import SessionKey
from lango.store.sessions.store import SqlSessionStore
from tests.support.pgvector import pgvector_cluster

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence

    from sqlalchemy.ext.asyncio import AsyncConnection

_LIMIT: Final = 10
_TARGET: Final = 2.0
_MOST: Final = 3_600.0
_BATCH: Final = 1_000
_VOCABULARY: Final = 5_000
_USUAL: Final = "the usual things of a day in the shop"
"""Words that every entry has: a search ranks the newest entries of each."""
_RARE: Final = 4
"""Other words of an entry, and two of a query."""


@dataclass(frozen=True, slots=True)
class _Size:
    """The entries of the users that are searched, and of those that are not."""

    few: int
    many: int
    others: int
    searches: int  # in a round, of each contender


_FULL: Final = _Size(few=20, many=10_000, others=20_000, searches=40)
_QUICK: Final = _Size(few=20, many=1_000, others=2_000, searches=20)

_RANKED: Final = f"""
hits as (select number, pk, count(*) over (partition by number) as df from found),
total as (select count(distinct pk) as n from hits),
best as (
  select pk,
    round(cast(sum(ln(1 + cast(n as double precision) / df)) as numeric), 9) as score
  from hits, total group by pk order by score desc, pk desc limit {_LIMIT}
)
select m.pk, m.session_id, m.event_id, m.author, m.role, m.timestamp,
  substr(m.text, 1, {MAX_SHOWN}) as text, m.metadata
from best join memories as m on m.pk = best.pk order by best.score desc, m.pk desc
"""  # noqa: S608 - of constants
_FOUND: Final = f"""
with found as (
  select w.number, m.pk from unnest($1::text[]) with ordinality as w(query, number)
  cross join lateral (
    select pk from memories
    where array_to_tsvector(string_to_array(terms, ' ')) @@ cast(w.query as tsquery)
    order by pk + 0 desc limit {HITS}
  ) as m
)"""  # noqa: S608
_ON_POSTGRES: Final = f"{_FOUND}, {_RANKED}"
_ON_PGVECTOR: Final = f"""{_FOUND},
hits as (select number, pk, count(*) over (partition by number) as df from found),
total as (select count(distinct pk) as n from hits),
scored as (
  select pk, round(cast(sum(ln(1 + cast(n as double precision) / df)) as numeric), 9) as score
  from hits, total group by pk
),
near as (
  select pk, cast(embedding as vector) <=> cast(cast($2 as real[]) as vector) as distance from (
    select pk, embedding from memories
    where tenant = '' and app_name = 'bench' and user_id = $3 and embedding_model || '' = $4
    order by pk desc limit {NEWEST}
  ) as newest order by distance, pk desc limit {NEAREST}
),
ranks as (
  select pk, row_number() over (order by score desc, pk desc) as rank from scored
  union all select pk, row_number() over (order by distance, pk desc) as rank from near
),
best as (
  select pk, sum(1 / cast(60 + rank as double precision)) as score from ranks
  group by pk order by score desc, pk desc limit {_LIMIT}
)
select m.pk, m.session_id, m.event_id, m.author, m.role, m.timestamp,
  substr(m.text, 1, {MAX_SHOWN}) as text, m.metadata
from best join memories as m on m.pk = best.pk order by best.score desc, m.pk desc
"""  # noqa: S608
_MODEL: Final = "bench:model"
_DIMENSIONS: Final = 1_536
_EMBED: Final = f"""
update memories set embedding_model = '{_MODEL}', embedding = v.embedding
from (
  select pk, array_agg(cast(random() - 0.5 as real)) as embedding
  from memories, generate_series(1, {_DIMENSIONS}) where user_id in ('few', 'many') group by pk
) as v where v.pk = memories.pk
"""  # noqa: S608
_WORD_ON_SQLITE: Final = f"""select {{number}} as number, pk from (
  select rowid as pk from memory_words where memory_words match ?
  order by rowid desc limit {HITS})"""  # noqa: S608


def _on_sqlite(words: int) -> str:
    found = " union all ".join(_WORD_ON_SQLITE.format(number=number) for number in range(words))
    return f"with found as ({found}), {_RANKED}"


def _user(name: str) -> SessionKey:
    return SessionKey("", "bench", name, "")


def _text(drawn: random.Random) -> str:
    words = " ".join(f"word{drawn.randrange(_VOCABULARY)}" for _ in range(_RARE))
    return f"{_USUAL}: {words}, and what else was said of it"


def _query(drawn: random.Random) -> str:
    rare = (f"word{drawn.randrange(_VOCABULARY)}" for _ in range(2))
    return f"{' '.join(rare)} in the usual shop"


async def _fill(store: SqlSessionStore, user: SessionKey, count: int, drawn: random.Random) -> None:
    """Add entries without a session, as `add_memory` does, but many at a time."""

    async def insert(connection: AsyncConnection, rows: Sequence[dict[str, object]]) -> None:
        await connection.execute(sa.insert(memories), rows)

    texts = [_text(drawn) for _ in range(count)]
    rows: list[dict[str, object]] = [
        {
            **user.of_user,
            "session_id": "",
            "event_id": f"e{number}",
            "author": "user",
            "role": "user",
            "timestamp": 1_760_000_000.0 + number,
            "text": text,
            "terms": terms_of(user, text),
        }
        for number, text in enumerate(texts)
    ]
    for first in range(0, count, _BATCH):
        await store.database.write(insert, rows[first : first + _BATCH], is_long=True)


async def _populate(store: SqlSessionStore, size: _Size) -> None:
    drawn = random.Random(20)
    for number in range(size.others // size.few):
        await _fill(store, _user(f"other{number}"), size.few, drawn)
    await _fill(store, _user("few"), size.few, drawn)
    await _fill(store, _user("many"), size.many, drawn)


Search: TypeAlias = "Callable[[SessionKey, str], Awaitable[list[int]]]"
"""The keys of what a search finds, the best first."""


@asynccontextmanager
async def _postgres(size: _Size) -> AsyncGenerator[dict[str, Search]]:
    async with own_database() as url:
        await upgrade(url)
        async with SqlSessionStore(url) as store:
            await _populate(store, size)
            connection = await connect(url)
            await connection.execute("vacuum analyze")

            async def bare(user: SessionKey, query: str) -> list[int]:
                queries = [f"'{owner_of(user)}' & '{word}'" for word in query_words(query)]
                return [row["pk"] for row in await connection.fetch(_ON_POSTGRES, queries)]

            yield {"bare asyncpg": bare, "lango": partial(_searched, store)}
            await connection.close()


@asynccontextmanager
async def _pgvector(size: _Size) -> AsyncGenerator[dict[str, Search]]:
    """A server with pgvector; the vectors of queries are there before the clock starts."""
    drawn = random.Random(3)
    vectors = [[drawn.gauss(0, 1) for _ in range(_DIMENSIONS)] for _ in range(50)]

    def vector_of(query: str) -> list[float]:
        return vectors[crc32(query.encode()) % len(vectors)]

    with pgvector_cluster() as cluster:
        await upgrade(cluster.url)
        async with SqlSessionStore(cluster.url) as store:
            await _populate(store, size)
            connection = await connect(cluster.url)
            for statement in ("create extension vector", _EMBED, "vacuum analyze"):
                await connection.execute(statement)

            async def bare(user: SessionKey, query: str) -> list[int]:
                queries = [f"'{owner_of(user)}' & '{word}'" for word in query_words(query)]
                values = (queries, vector_of(query), user.user_id, _MODEL)
                return [row["pk"] for row in await connection.fetch(_ON_PGVECTOR, *values)]

            async def ours(user: SessionKey, query: str) -> list[int]:
                vector = QueryVector(_MODEL, vector_of(query))
                return await _searched(store, user, query, vector)

            yield {"bare asyncpg": bare, "lango": ours}
            await connection.close()


@asynccontextmanager
async def _sqlite(size: _Size) -> AsyncGenerator[dict[str, Search]]:
    with tempfile.TemporaryDirectory(prefix="lango-bench-") as folder:
        path = Path(folder) / "lango.db"
        async with SqlSessionStore(f"sqlite:///{path}") as store:
            await _populate(store, size)
            with closing(sqlite3.connect(path)) as connection:

                async def bare(user: SessionKey, query: str) -> list[int]:
                    words = query_words(query)
                    matched = [f'"{owner_of(user)}" AND "{word}"' for word in words]
                    rows = connection.execute(_on_sqlite(len(words)), matched)
                    return [row[0] for row in rows]

                yield {"bare sqlite3": bare, "lango": partial(_searched, store)}


async def _searched(
    store: SqlSessionStore, user: SessionKey, query: str, vector: QueryVector | None = None
) -> list[int]:
    found = await SqlMemoryStore(store.database).search(user, query, _LIMIT, vector=vector)
    return [entry.pk for entry in found]


async def _round(search: Search, user: SessionKey, searches: int, drawn: random.Random) -> Sample:
    """Search some times; the sample has the 95th percentile of the times, and the mean CPU."""
    times: list[float] = []
    began = time.process_time()
    for _ in range(searches):
        query = _query(drawn)
        start = time.perf_counter()
        await search(user, query)
        times.append(time.perf_counter() - start)
    return Sample(_percentile(times), (time.process_time() - began) / searches)


def _percentile(times: Sequence[float], share: float = 0.95) -> float:
    return sorted(times)[min(int(len(times) * share), len(times) - 1)]


async def _check_same(searches: dict[str, Search], user: SessionKey) -> None:
    """Both must find the same, or the comparison says nothing."""
    drawn = random.Random(7)
    for _ in range(20):
        query = _query(drawn)
        found = [await search(user, query) for search in searches.values()]
        if found[0] != found[1]:
            raise AssertionError(f"{query!r} finds {found[0]} and {found[1]}")


async def _measure(database: str, searches: dict[str, Search], size: _Size, rounds: int) -> Result:
    columns = ("entries of the user", "contender", "p95, ms", "client CPU, ms", "× bare")
    table = Table(f"Search in memory on {database}", columns)
    findings: list[Finding] = []
    for name, count in (("few", size.few), ("many", size.many)):
        user = _user(name)
        await _check_same(searches, user)
        rounders = {
            contender: partial(_round, search, user, size.searches, random.Random(9))
            for contender, search in searches.items()
        }
        samples = await interleave(rounders, rounds)
        bare, ours = samples.values()
        ratio = estimate(divide(wall(ours), wall(bare)))
        for contender, taken in samples.items():
            shown = ratio if taken is ours else "1.00"
            p95, busy = median(wall(taken)), median(cpu(taken))
            table.add(f"{count:,}", contender, millis(p95), millis(busy), shown)
        what = f"search p95 on {database}, {count:,} entries, × bare"
        findings.append(Finding(Target(what, _TARGET), ratio))
    return Result([table], findings)


async def main(*, quick: bool) -> int:
    """Run it; the exit code."""
    size = _QUICK if quick else _FULL
    async with (
        _postgres(size) as on_postgres,
        _pgvector(size) as on_pgvector,
        _sqlite(size) as on_sqlite,
    ):
        databases = {
            "PostgreSQL": on_postgres,
            "PostgreSQL, with embeddings": on_pgvector,
            "SQLite": on_sqlite,
        }
        measures = [
            partial(settle, partial(_measure, name, searches, size), MIN_ROUNDS)
            for name, searches in databases.items()
        ]
        return await run("memory", measures, _MOST)
