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
from faults.turns.workspace import TurnProcess, Workspace, turn_process
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
PATIENCE = 300.0


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
async def process(vector_url: str, tmp_path: Path) -> AsyncIterator[TurnProcess]:
    async with turn_process(Workspace(vector_url, f"app_{uuid4().hex}", tmp_path)) as opened:
        yield opened


def worker(process: TurnProcess, embedder: Embedder) -> TurnWorker:
    apps = loaded(process.store, process.workspace.app, process.workspace.effects)
    apps[process.workspace.app].remembers = True
    apps[process.workspace.app].embedder = embedder
    return TurnWorker(process.store, process.engine, apps)


async def add(process: TurnProcess, *texts: str) -> None:
    key = SessionKey("", process.workspace.app, "user", "")
    entries = [
        NewMemory(f"{n} {text[:9]}", "user", "user", 1.0, text) for n, text in enumerate(texts)
    ]
    await SqlMemoryStore(process.store.database).add(SessionRef(key), entries)


async def stored(process: TurnProcess) -> dict[str, list[float] | None]:
    """The embeddings of the app's entries, by their texts."""
    columns = (memories.c.text, memories.c.embedding, memories.c.embedding_model)
    statement = sa.select(*columns).where(memories.c.app_name == process.workspace.app)
    async with beside(process.workspace.url) as connection:
        rows = (await connection.execute(statement)).all()
    assert all((row.embedding is not None) == (row.embedding_model == MODEL) for row in rows)
    return {row.text: row.embedding for row in rows}


async def embedded(process: TurnProcess, count: int) -> dict[str, list[float] | None]:
    """Wait until so many entries have embeddings."""
    async with asyncio.timeout(PATIENCE):
        while True:
            found = await stored(process)
            if sum(vector is not None for vector in found.values()) >= count:
                return found
            await asyncio.sleep(0.05)


@asynccontextmanager
async def embedding(process: TurnProcess, embedder: Embedder) -> AsyncGenerator[EntryEmbedding]:
    """The part of a worker that embeds entries, without the rest."""
    entries = EntryEmbedding(EntryVectors(process.store.database), process.workspace.app, embedder)

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
    process: TurnProcess, server: EmbeddingServer, embedder: Embedder
) -> None:
    await add(process, "an entry from before")
    async with worker(process, embedder):
        await embedded(process, 1)
        turns = [await process.say(f"say word{n}", session=f"s{n}") for n in range(3)]
        for turn in turns:
            assert (await process.turns.wait(turn)).state == "completed"
        found = await embedded(process, 7)
    assert {text: vector_of(text) for text in found} == found
    texts = [text for request in server.requests for text in request]
    assert sorted(texts) == sorted(found)  # each was sent once


async def test_a_model_that_is_down_delays_embeddings_and_no_turn(
    process: TurnProcess,
    server: EmbeddingServer,
    embedder: Embedder,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING, embeddings.__name__)
    server.status = 503
    async with worker(process, embedder):
        assert (await process.turns.wait(await process.say("say one"))).state == "completed"
        await server.asked(2)
        assert list((await stored(process)).values()) == [None, None]
        server.status = 200
        await embedded(process, 2)
        server.open.clear()  # it takes the request and does not answer
        asked = len(server.requests)
        assert (await process.turns.wait(await process.say("say two"))).state == "completed"
        await server.asked(asked + 1)
        assert (await process.turns.wait(await process.say("say three"))).state == "completed"
        server.open.set()
        await embedded(process, 6)
    assert len(caplog.messages) == 1
    assert f"get no embeddings until {MODEL} answers" in caplog.text


async def test_a_text_that_the_model_refuses_holds_up_no_other(
    process: TurnProcess, server: EmbeddingServer, embedder: Embedder
) -> None:
    server.refused, server.too_long = "poison", 1_600
    long = "word " * 1_000
    await add(process, "one", "poison", "two", long, "three")
    async with embedding(process, embedder):
        found = await embedded(process, 4)
    assert found["poison"] is None
    assert found["three"] == vector_of("three")
    assert found[long] == vector_of(long[:1_250])


async def test_a_model_that_refuses_everything_is_asked_less_and_less(
    process: TurnProcess,
    server: EmbeddingServer,
    embedder: Embedder,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING, embeddings.__name__)
    server.status = 400
    await add(process, "one", "two", "three")
    async with embedding(process, embedder):
        await server.asked(5)  # together, by halves, and each alone
        await asyncio.sleep(0.3)
        assert len(server.requests) == 5
        server.status = 200
        await embedded(process, 3)
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
    async with turn_process(Workspace(postgres_url, f"app_{uuid4().hex}", tmp_path)) as process:
        await add(process, "text")
        async with embedding(process, embedder):
            await asyncio.sleep(0.5)
        assert await stored(process) == {"text": None}
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
    process: TurnProcess, server: EmbeddingServer
) -> None:
    settings = SETTINGS.format(
        app=process.workspace.app, model=MODEL, base_url=server.url, url=process.workspace.url
    )
    (process.workspace.folder / "lango.yaml").write_text(settings)
    server.open.clear()
    with Running(process.workspace.folder, "worker") as doomed:
        turns = [await process.say(f"say word{n}", session=f"s{n}") for n in range(5)]
        for turn in turns:
            assert (await process.turns.wait(turn)).state == "completed"
        await server.asked()
        doomed.kill()  # while the model has its texts
    assert set((await stored(process)).values()) == {None}
    server.open.set()
    await age_claims(process)
    with (
        Running(process.workspace.folder, "worker") as first,
        Running(process.workspace.folder, "worker"),
    ):
        found = await embedded(process, 10)
        assert first.process.poll() is None
    assert {text: vector_of(text) for text in found} == found
    first_request, *later = server.requests
    assert sorted(text for request in later for text in request) == sorted(found)
    assert set(first_request) <= set(found)


async def age_claims(process: TurnProcess) -> None:
    """Let the claims of entries be old: no worker would wait so long in a test."""
    earlier = memories.c.embedding_claimed - sa.literal_column("interval '1 hour'")
    async with beside(process.workspace.url) as connection:
        of_app = memories.c.app_name == process.workspace.app
        statement = sa.update(memories).where(of_app).values(embedding_claimed=earlier)
        assert (await connection.execute(statement)).rowcount == 10
