"""Embeddings of entries on a real pgvector: who gets them, what they find, and what is left."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from lango.store.memory.store import NewMemory, SqlMemoryStore
from lango.store.memory.vectors import (
    CLAIM_STATEMENT,
    NEAREST,
    NEWEST,
    QueryVector,
    nearest_statement,
)
from lango.store.schema import migrate
from lango.store.schema.tables import memories
from lango.store.sessions.entries import SessionKey, SessionRef
from lango.store.sessions.store import SqlSessionStore
from tests.store.rows import beside, created, raw, said
from tests.support.databases import on_server, temporary_postgres
from tests.support.pgvector import pgvector_cluster

MODEL = "some:model"


def user(tenant: str, name: str = "ann", app: str = "app") -> SessionKey:
    """A user, in an app of the test's own: embeddings are made for all tenants of an app."""
    return SessionKey(tenant, f"{app}-{tenant}", name, "")


@asynccontextmanager
async def opened(url: str) -> AsyncGenerator[SqlMemoryStore]:
    async with SqlSessionStore(url) as sessions:
        yield SqlMemoryStore(sessions.database)


async def add(store: SqlMemoryStore, key: SessionKey, *texts: str) -> None:
    entries = [NewMemory(f"id of {text}", "user", "user", 1.0, text) for text in texts]
    await store.add(SessionRef(key), entries)


async def embed(
    store: SqlMemoryStore, key: SessionKey, vectors: dict[str, list[float]], model: str = MODEL
) -> None:
    """Embed all entries of the user's app; those that are not named have a vector far away."""
    claimed = await store.vectors.claim(key.app_name, model, 1_000)
    far = [-1.0] * len(next(iter(vectors.values())))
    await store.vectors.add(model, {entry.pk: vectors.get(entry.text, far) for entry in claimed})


async def found(
    store: SqlMemoryStore, key: SessionKey, query: str, *vector: float, limit: int = 10
) -> list[str]:
    near = QueryVector(MODEL, vector) if vector else None
    return [entry.text for entry in await store.search(key, query, limit, vector=near)]


async def columns(url: str, tenant: str) -> list[Any]:
    """What is stored of embeddings: vector, model and claim of each entry."""
    statement = sa.select(
        memories.c.embedding, memories.c.embedding_model, memories.c.embedding_claimed
    )
    async with beside(url) as connection:
        rows = await connection.execute(
            statement.where(memories.c.tenant == tenant).order_by(memories.c.pk)
        )
        return [tuple(row) for row in rows]


NONE = (None, "", None)


async def test_a_search_merges_words_and_vectors(vector_url: str, tenant: str) -> None:
    ann = user(tenant)
    async with opened(vector_url) as store:
        await add(store, ann, "the cat sleeps", "a kitten dreams", "the invoice", "taxes")
        near = {"a kitten dreams": [1.0, 0.1], "the cat sleeps": [1.0, 0.0], "taxes": [0.0, 1.0]}
        await embed(store, ann, near)
        assert await found(store, ann, "cat") == ["the cat sleeps"]
        by_meaning = await found(store, ann, "feline", 1.0, 0.08)
        assert by_meaning[:2] == ["a kitten dreams", "the cat sleeps"]
        assert len(by_meaning) == 4
        merged = await found(store, ann, "the cat", 1.0, 0.08)
        assert merged[0] == "the cat sleeps"  # found by both
        assert set(merged) == set(by_meaning)
        pages = [
            await store.search(ann, "the cat", 2, skipped=n, vector=QueryVector(MODEL, [1.0, 0.08]))
            for n in (0, 2)
        ]
        assert [entry.text for page in pages for entry in page] == merged


async def test_no_entry_of_another_is_found_by_its_meaning(vector_url: str, tenant: str) -> None:
    ann = user(tenant)
    others = (user(tenant, "bob"), user(tenant, app="other"))
    of_others = SessionKey(f"{tenant}-2", ann.app_name, "ann", "")
    async with opened(vector_url) as store:
        for key in (*others, of_others):
            await add(store, key, "a secret")
            await embed(store, key, {"a secret": [1.0, 0.0]})
            assert await found(store, key, "riddle", 1.0, 0.0) == ["a secret"]
        assert await found(store, ann, "riddle", 1.0, 0.0) == []
        await add(store, ann, "my own")
        await embed(store, ann, {"my own": [0.0, 1.0]})
        assert await found(store, ann, "riddle", 1.0, 0.0) == ["my own"]


async def test_each_entry_is_claimed_by_one_worker(vector_url: str, tenant: str) -> None:
    ann = user(tenant)
    async with opened(vector_url) as store, opened(vector_url) as other:
        await add(store, ann, *(f"text {number}" for number in range(40)))
        claims = await asyncio.gather(
            *(each.vectors.claim(ann.app_name, MODEL, 10) for each in (store, other) * 3)
        )
        pks = [entry.pk for claim in claims for entry in claim]
        assert len(pks) == len(set(pks)) == 40
        assert [len(claim) for claim in claims].count(10) == 4
        newest = {f"text {number}" for number in range(30, 40)}
        assert newest in [{entry.text for entry in claim} for claim in claims]


async def test_a_claim_expires_or_is_released(vector_url: str, tenant: str) -> None:
    ann = user(tenant)
    async with opened(vector_url) as store:
        await add(store, ann, "text")
        [entry] = await store.vectors.claim(ann.app_name, MODEL)
        assert await store.vectors.claim(ann.app_name, MODEL) == []
        await store.vectors.release([entry])
        assert await store.vectors.claim(ann.app_name, MODEL) == [entry]
        await expire(vector_url, tenant)
        assert await store.vectors.claim(ann.app_name, MODEL) == [entry]
        await store.vectors.add(MODEL, {entry.pk: [1.0, 0.0]})
        await store.vectors.add(MODEL, {entry.pk: [0.0, 1.0]})  # of a worker that was slow
        assert await columns(vector_url, tenant) == [([0.0, 1.0], MODEL, None)]
        assert await store.vectors.claim(ann.app_name, MODEL) == []


async def expire(url: str, tenant: str) -> None:
    earlier = memories.c.embedding_claimed - sa.literal_column("interval '1 hour'")
    async with beside(url) as connection:
        await connection.execute(
            sa.update(memories).where(memories.c.tenant == tenant).values(embedding_claimed=earlier)
        )


async def test_entries_of_another_model_are_embedded_anew(vector_url: str, tenant: str) -> None:
    ann = user(tenant)
    async with opened(vector_url) as store:
        await add(store, ann, "old")
        await embed(store, ann, {"old": [1.0, 0.0]})
        await add(store, ann, "new")
        for model in ("another:model", "zzz:model"):  # before and after it in the index
            claimed = await store.vectors.claim(ann.app_name, model)
            assert [entry.text for entry in claimed] in (["new", "old"], ["old", "new"])
            await store.vectors.release(claimed)
        assert [entry.text for entry in await store.vectors.claim(ann.app_name, MODEL)] == ["new"]
        # A model that changed its dimensions under the same name finds what fits, without an error.
        assert await found(store, ann, "x", 1.0, 0.0, 0.0) == []
        other = QueryVector("another:model", [1.0, 0.0])
        assert await store.search(ann, "x", 10, vector=other) == []


async def test_a_deleted_entry_has_no_embedding(vector_url: str, tenant: str) -> None:
    ann = user(tenant)
    async with opened(vector_url) as store, SqlSessionStore(vector_url) as sessions:
        ref = await created(sessions, SessionKey(*ann.columns[:3], "session"))
        await sessions.append(ref, said("e1", "a secret"))
        await store.add_session(ref)
        await add(store, ann, "a note")
        claimed = await store.vectors.claim(ann.app_name, MODEL)
        vectors = {entry.pk: [1.0, 0.0] for entry in claimed}
        assert len(vectors) == 2
        assert await store.delete_all(ann) == 2
        assert await columns(vector_url, tenant) == [NONE]  # the blank of the message
        await store.vectors.add(MODEL, vectors)  # the worker comes too late
        assert await columns(vector_url, tenant) == [NONE]
        assert await store.vectors.claim(ann.app_name, MODEL) == []

        await sessions.append(ref, said("e2", "another secret"))
        await store.add_session(ref)
        await embed(store, ann, {"another secret": [1.0, 0.0]})
        assert len(await found(store, ann, "x", 1.0, 0.0)) == 1
        await store.delete_all(ann)
        assert await columns(vector_url, tenant) == [NONE, NONE]
        await sessions.delete_user(tenant, ann.user_id)
        assert await columns(vector_url, tenant) == []


async def test_a_search_compares_the_newest_entries_alone(
    vector_url: str, tenant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lango.store.memory.vectors.NEWEST", 3)
    ann = user(tenant)
    async with opened(vector_url) as store:
        await add(store, ann, "first", "second", "third", "fourth")
        await embed(store, ann, {"first": [1.0, 0.0], "third": [1.0, 0.0]})
        assert await found(store, ann, "x", 1.0, 0.0) == ["third", "fourth", "second"]
    assert NEAREST > 3


@pytest.fixture(params=["sqlite_url", "postgres_url"])
def plain_url(request: pytest.FixtureRequest) -> str:
    """A database without pgvector."""
    return request.getfixturevalue(request.param)


async def test_without_the_extension_words_find_the_same(plain_url: str, tenant: str) -> None:
    ann = user(tenant)
    async with opened(plain_url) as store:
        await add(store, ann, "the cat")
        assert not await store.vectors.are_supported()
        assert await found(store, ann, "cat", 1.0, 0.0) == ["the cat"]
        assert await found(store, ann, "feline", 1.0, 0.0) == []
    assert await columns(plain_url, tenant) == [NONE]


async def test_the_extension_may_be_in_another_schema_and_come_later(tenant: str) -> None:
    ann = user(tenant)
    with pgvector_cluster() as cluster:
        async with temporary_postgres(cluster.url) as url:
            await on_server(url, 'create schema "its Own"', "create schema lango")
            await migrate.upgrade(url, "lango")
            async with SqlSessionStore(url, schema="lango") as sessions:
                store = SqlMemoryStore(sessions.database)
                await add(store, ann, "the cat")
                assert await found(store, ann, "feline", 1.0, 0.0) == []
                await on_server(url, 'create extension vector schema "its Own"')
                await embed(store, ann, {"the cat": [1.0, 0.0]})
                assert await found(store, ann, "feline", 1.0, 0.0) == ["the cat"]


async def test_pending_entries_and_the_entries_of_a_user_are_found_by_their_indexes(
    vector_url: str, tenant: str
) -> None:
    """However many entries others have."""
    ann, bob = user(tenant), user(tenant, "bob")
    claim = {"app_name": ann.app_name, "model": MODEL, "lasts": 300.0, "most": 64}
    search = {"model": MODEL, "vector": [1.0, 0.0], "newest": NEWEST, "nearest": NEAREST}
    async with opened(vector_url) as store:
        await add(store, bob, *(f"text {number}" for number in range(1_500)))
        for _ in range(2):
            await embed(store, bob, {"text 1": [1.0, 0.0]})
        await add(store, ann, "mine")
        await embed(store, ann, {"mine": [1.0, 0.0]})
    async with raw(vector_url) as connection:
        await connection.execute("vacuum analyze memories")
    async with beside(vector_url) as connection:
        pending = await plan(connection, CLAIM_STATEMENT, claim)
        nearest = await plan(connection, nearest_statement("public"), {**ann.of_user, **search})
    assert pending.count("memories_embedding_ix") == 2
    assert "memories_user_ix" in nearest
    for lines in (pending, nearest):
        assert "Seq Scan on memories" not in lines


async def plan(connection: AsyncConnection, statement: sa.TextClause, values: Any) -> str:
    return "\n".join(await connection.scalars(sa.text(f"explain {statement}"), values))
