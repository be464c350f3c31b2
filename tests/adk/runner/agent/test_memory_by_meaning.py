"""Memory that is searched by its meaning: a real embedding model, a real pgvector, ADK's tools."""

import asyncio
import contextlib
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from dataclasses import dataclass

import pytest
import pytest_asyncio
import sqlalchemy as sa
from google.adk.agents import BaseAgent
from google.adk.memory.memory_entry import MemoryEntry
from google.adk.tools.load_memory_tool import load_memory_tool
from google.adk.tools.preload_memory_tool import preload_memory_tool
from google.genai import types

from lango.adk.memory import SqlMemoryService
from lango.agent.agent import Agent
from lango.core.turns.events import ToolFinished
from lango.errors import ConfigError, UnknownModelError
from lango.providers.embeddings import Embedder
from lango.providers.registry import Access, resolve_embedder
from lango.store.schema.tables import memories
from tests.adk.runner.agent.durable_agents import told
from tests.adk.runner.turns import Script, call
from tests.providers import local_model
from tests.store.rows import beside
from tests.support.embedding_server import embedding_server
from tests.support.environments import NoEnvironmentError
from tests.support.skipping import skipped_without

FACTS = (
    "My favourite food is lasagne.",
    "Python raised a TypeError in the parser.",
    "It rained all week in London.",
    "He plays the violin in an orchestra.",
    "The invoice was paid on Monday.",
)
QUERIES = {  # none has a word of a fact
    "What do you like to eat?": FACTS[0],
    "programming bug": FACTS[1],
    "bad weather across England": FACTS[2],
}


@pytest.fixture
def app() -> str:
    """An app of the test's own: workers embed the entries of all tenants of an app."""
    return f"app_{uuid.uuid4().hex}"


@pytest.fixture(scope="module")
def model_url() -> Iterator[str]:
    missing = skipped_without(NoEnvironmentError, "local model")
    with missing, local_model.served(embeddings=True) as url:
        yield url


@pytest_asyncio.fixture
async def embedder(model_url: str) -> AsyncIterator[Embedder]:
    async with opened(model_url) as made:
        yield made


@contextlib.asynccontextmanager
async def opened(url: str) -> AsyncGenerator[Embedder]:
    made = resolve_embedder("llamacpp:local", access={"llamacpp": Access(base_url=url)})
    try:
        yield made
    finally:
        await made.close()


@dataclass(frozen=True)
class AppMemory:
    """The memory of one app of a tenant, in a database."""

    url: str
    tenant: str
    app: str

    def agent(self, root: BaseAgent, embedder: Embedder | None = None) -> Agent:
        return Agent(
            root,
            store=self.url,
            tenant=self.tenant,
            app_name=self.app,
            memory=True,
            embeddings=embedder,
        )


async def remember(agent: Agent, tenant: str, user: str, *texts: str) -> None:
    service = memory_of(agent)
    entries = [
        MemoryEntry(
            author="user", content=types.Content(role="user", parts=[types.Part(text=text)])
        )
        for text in texts
    ]
    assert service.tenant == tenant
    await service.add_memory(app_name=agent.runner.app.name, user_id=user, memories=entries)


def memory_of(agent: Agent) -> SqlMemoryService:
    service = agent.runner.memory_service
    assert isinstance(service, SqlMemoryService)
    return service


async def search(agent: Agent, query: str, user: str = "ann") -> list[str]:
    app = agent.runner.app.name
    found = await memory_of(agent).search_memory(app_name=app, user_id=user, query=query)
    return [part.text or "" for entry in found.memories for part in entry.content.parts or ()]


async def all_embedded(url: str, app: str) -> None:
    """Wait until the worker has embedded every entry of the app."""
    is_pending = sa.and_(memories.c.app_name == app, memories.c.embedding.is_(None))
    async with asyncio.timeout(300):
        while True:
            async with beside(url) as connection:
                if await connection.scalar(sa.select(sa.func.count()).where(is_pending)) == 0:
                    return
            await asyncio.sleep(0.1)


async def test_other_words_find_what_was_said(
    vector_url: str, tenant: str, app: str, embedder: Embedder
) -> None:
    booked = "The accountant has booked it for this quarter."
    script = Script(booked, call("load_memory", query="programming bug"), "There was one.")
    root = script.agent("clerk", tools=[load_memory_tool])
    app_memory = AppMemory(vector_url, tenant, app)
    async with app_memory.agent(root, embedder) as agent, app_memory.agent(root) as by_words:
        await remember(agent, tenant, "ann", *FACTS[:-1])
        await agent.run_and_collect(FACTS[-1], user="ann", session="one")
        await all_embedded(vector_url, app)
        for query, fact in QUERIES.items():
            assert (await search(agent, query))[0] == fact
            assert await search(by_words, query) == []
            assert await search(agent, query, user="bob") == []
        events = await told(agent.stream("What went wrong?", user="ann", session="two"))
        [result] = [event.result for event in events if isinstance(event, ToolFinished)]
        assert result is not None
        [first, *_] = result["result"]["memories"]
        assert first["content"]["parts"] == [{"text": FACTS[1]}]


async def test_preload_memory_puts_it_before_the_model(
    vector_url: str, tenant: str, app: str, embedder: Embedder
) -> None:
    script = Script("Noted.", "Lasagne!")
    root = script.agent("clerk", tools=[preload_memory_tool])
    async with AppMemory(vector_url, tenant, app).agent(root, embedder) as agent:
        await agent.run_and_collect(FACTS[0], user="user", session="one")
        await all_embedded(vector_url, app)
        await agent.run_and_collect("What do you like to eat?", user="user", session="two")
    asked = script.requests[-1].messages
    assert any("lasagne" in message.content for message in asked)


async def test_no_search_fails_because_of_the_model(
    vector_url: str, tenant: str, app: str, caplog: pytest.LogCaptureFixture
) -> None:
    with embedding_server() as server:
        async with (
            opened(server.url) as embedder,
            AppMemory(vector_url, tenant, app).agent(Script().agent("clerk"), embedder) as agent,
        ):
            await remember(agent, tenant, "ann", *FACTS)
            server.status = 500
            for _ in range(2):
                assert await search(agent, "lasagne") == [FACTS[0]]
    assert [record.levelname for record in caplog.records] == ["WARNING"]


async def test_without_pgvector_no_query_is_sent(store_url: str, tenant: str, app: str) -> None:
    with embedding_server() as server:
        async with (
            opened(server.url) as embedder,
            AppMemory(store_url, tenant, app).agent(Script().agent("clerk"), embedder) as agent,
        ):
            await remember(agent, tenant, "ann", *FACTS)
            assert await search(agent, "lasagne") == [FACTS[0]]
            assert await search(agent, "food that you eat") == [FACTS[0]]
    assert server.requests == []


def test_a_model_that_cannot_be_is_refused_at_once(sqlite_url: str) -> None:
    root = Script().agent("clerk")
    with pytest.raises(UnknownModelError, match="no embedding models"):
        Agent(root, store=sqlite_url, embeddings="anthropic:some")
    with pytest.raises(ConfigError, match="`embeddings` needs a store"):
        Agent(root, embeddings="openai:text-embedding-3-small")
