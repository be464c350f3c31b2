"""Embeddings of memory by workers: after the close, once for each entry; they delay no turn."""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from uuid import uuid4

import pytest
import pytest_asyncio
import sqlalchemy as sa

from faults.turns.agents import loaded
from faults.turns.place import Place, Process, process
from lango.providers.embeddings import Embedder
from lango.providers.registry import Access, resolve_embedder
from lango.store.memory.store import NewMemory, SqlMemoryStore
from lango.store.memory.vectors import EntryVectors
from lango.store.schema.tables import memories
from lango.store.sessions.entries import SessionKey, SessionRef
from lango.turns import embeddings
from lango.turns.embeddings import EntryEmbedding
from lango.turns.worker import TurnWorker
from tests.cli.processes import Running
from tests.store.rows import beside
from tests.support.embedding_server import EmbeddingServer, embedding_server, vector_of

MODEL = "llamacpp:local"
PATIENCE = 60.0


@pytest.fixture
def server() -> Iterator[EmbeddingServer]:
    with embedding_server() as made:
        yield made


@pytest_asyncio.fixture
async def embedder(server: EmbeddingServer) -> AsyncIterator[Embedder]:
    made = resolve_embedder(MODEL, access={"llamacpp": Access(base_url=server.url)})
    yield made
    await made.close()


@pytest_asyncio.fixture
async def here(vector_url: str, tmp_path: Path) -> AsyncIterator[Process]:
    async with process(Place(vector_url, f"app_{uuid4().hex}", tmp_path)) as opened:
        yield opened


def worker(here: Process, embedder: Embedder) -> TurnWorker:
    apps = loaded(here.store, here.place.app, here.place.effects)
    apps[here.place.app].remembers = True
    apps[here.place.app].embedder = embedder
    return TurnWorker(here.store, here.engine, apps)


async def add(here: Process, *texts: str) -> None:
    key = SessionKey("", here.place.app, "user", "")
    entries = [
        NewMemory(f"{n} {text[:9]}", "user", "user", 1.0, text) for n, text in enumerate(texts)
    ]
    await SqlMemoryStore(here.store.database).add(SessionRef(key), entries)


async def stored(here: Process) -> dict[str, list[float] | None]:
    """The embeddings of the app's entries, by their texts."""
    columns = (memories.c.text, memories.c.embedding, memories.c.embedding_model)
    statement = sa.select(*columns).where(memories.c.app_name == here.place.app)
    async with beside(here.place.url) as connection:
        rows = (await connection.execute(statement)).all()
    assert all((row.embedding is not None) == (row.embedding_model == MODEL) for row in rows)
    return {row.text: row.embedding for row in rows}


async def embedded(here: Process, count: int) -> dict[str, list[float] | None]:
    """Wait until so many entries have embeddings."""
    async with asyncio.timeout(PATIENCE):
        while True:
            found = await stored(here)
            if sum(vector is not None for vector in found.values()) >= count:
                return found
            await asyncio.sleep(0.05)


@asynccontextmanager
async def embedding(here: Process, embedder: Embedder) -> AsyncGenerator[EntryEmbedding]:
    """The part of a worker that embeds entries, without the rest."""
    entries = EntryEmbedding(EntryVectors(here.store.database), here.place.app, embedder)

    async def steps() -> None:
        while True:
            await entries.step()

    task = asyncio.create_task(steps())
    try:
        yield entries
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def test_the_entries_of_closed_turns_are_embedded(
    here: Process, server: EmbeddingServer, embedder: Embedder
) -> None:
    await add(here, "an entry from before")
    async with worker(here, embedder):
        await embedded(here, 1)
        turns = [await here.say(f"say word{n}", session=f"s{n}") for n in range(3)]
        for turn in turns:
            assert (await here.turns.wait(turn)).state == "completed"
        found = await embedded(here, 7)
    assert {text: vector_of(text) for text in found} == found
    texts = [text for request in server.requests for text in request]
    assert sorted(texts) == sorted(found)  # each was sent once


async def test_a_model_that_is_down_delays_embeddings_and_no_turn(
    here: Process, server: EmbeddingServer, embedder: Embedder, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, embeddings.__name__)
    server.status = 503
    async with worker(here, embedder):
        assert (await here.turns.wait(await here.say("say one"))).state == "completed"
        await server.asked(2)
        assert list((await stored(here)).values()) == [None, None]
        server.status = 200
        await embedded(here, 2)
        server.open.clear()  # it takes the request and does not answer
        asked = len(server.requests)
        assert (await here.turns.wait(await here.say("say two"))).state == "completed"
        await server.asked(asked + 1)
        assert (await here.turns.wait(await here.say("say three"))).state == "completed"
        server.open.set()
        await embedded(here, 6)
    assert len(caplog.messages) == 1
    assert f"get no embeddings until {MODEL} answers" in caplog.text


async def test_a_text_that_the_model_refuses_holds_up_no_other(
    here: Process, server: EmbeddingServer, embedder: Embedder
) -> None:
    server.refused, server.too_long = "poison", 1_600
    long = "word " * 1_000
    await add(here, "one", "poison", "two", long, "three")
    async with embedding(here, embedder):
        found = await embedded(here, 4)
    assert found["poison"] is None
    assert found["three"] == vector_of("three")
    assert found[long] == vector_of(long[:1_250])


async def test_a_model_that_refuses_everything_is_asked_less_and_less(
    here: Process, server: EmbeddingServer, embedder: Embedder, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, embeddings.__name__)
    server.status = 400
    await add(here, "one", "two", "three")
    async with embedding(here, embedder):
        await server.asked(5)  # together, by halves, and each alone
        await asyncio.sleep(0.3)
        assert len(server.requests) == 5
        server.status = 200
        await embedded(here, 3)
    assert len(caplog.messages) == 1


async def test_without_pgvector_no_text_is_sent(
    postgres_url: str,
    tmp_path: Path,
    server: EmbeddingServer,
    embedder: Embedder,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(embeddings, "_LOOK_EVERY", 0.05)
    caplog.set_level(logging.WARNING, embeddings.__name__)
    async with process(Place(postgres_url, f"app_{uuid4().hex}", tmp_path)) as here:
        await add(here, "text")
        async with embedding(here, embedder):
            await asyncio.sleep(0.5)
        assert await stored(here) == {"text": None}
    assert server.requests == []
    assert len(caplog.messages) == 1
    assert "create extension vector" in caplog.text


SETTINGS = """\
apps:
  {app}:
    memory:
      embeddings: {model}
    agent:
      model: scripted:demo
providers:
  llamacpp:
    base_url: {base_url}
store:
  url: {url}
"""


async def test_entries_of_a_killed_worker_are_embedded_once(
    here: Process, server: EmbeddingServer
) -> None:
    settings = SETTINGS.format(
        app=here.place.app, model=MODEL, base_url=server.url, url=here.place.url
    )
    (here.place.folder / "lango.yaml").write_text(settings)
    server.open.clear()
    with Running(here.place.folder, "worker") as doomed:
        turns = [await here.say(f"say word{n}", session=f"s{n}") for n in range(5)]
        for turn in turns:
            assert (await here.turns.wait(turn)).state == "completed"
        await server.asked()
        doomed.kill()  # while the model has its texts
    assert set((await stored(here)).values()) == {None}
    server.open.set()
    await age_claims(here)
    with Running(here.place.folder, "worker") as first, Running(here.place.folder, "worker"):
        found = await embedded(here, 10)
        assert first.process.poll() is None
    assert {text: vector_of(text) for text in found} == found
    first_request, *later = server.requests
    assert sorted(text for request in later for text in request) == sorted(found)
    assert set(first_request) <= set(found)


async def age_claims(here: Process) -> None:
    """Let the claims of entries be old: no worker would wait so long in a test."""
    earlier = memories.c.embedding_claimed - sa.literal_column("interval '1 hour'")
    async with beside(here.place.url) as connection:
        of_app = memories.c.app_name == here.place.app
        statement = sa.update(memories).where(of_app).values(embedding_claimed=earlier)
        assert (await connection.execute(statement)).rowcount == 10
