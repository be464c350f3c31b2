"""Embedding models by name: what is sent, what comes back, and what happens when nothing does."""

import logging
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager

import pytest

from lango.errors import (
    AuthenticationError,
    BadRequestError,
    BadStreamError,
    ModelTimeoutError,
    ModelUnavailableError,
    UnknownModelError,
)
from lango.providers import embeddings
from lango.providers.embeddings import Embedder
from lango.providers.registry import Access, resolve_embedder
from tests.providers import local_model
from tests.support.embedding_server import EmbeddingServer, embedding_server, vector_of
from tests.support.environments import NoEnvironmentError
from tests.support.skipping import skipped_without

TEXTS = ["the cat sat", "on the mat"]
NAMES = ("openai:small", "openai-chat:small", "ollama:small", "gemini:small")


@pytest.fixture
def server() -> Iterator[EmbeddingServer]:
    with embedding_server() as made:
        yield made


@asynccontextmanager
async def opened(name: str, url: str) -> AsyncGenerator[Embedder]:
    provider = name.partition(":")[0]
    embedder = resolve_embedder(name, access={provider: Access("key", url)})
    try:
        yield embedder
    finally:
        await embedder.close()


@pytest.mark.parametrize("name", NAMES)
async def test_texts_become_vectors_in_their_order(name: str, server: EmbeddingServer) -> None:
    async with opened(name, server.url) as embedder:
        assert await embedder.embed(TEXTS) == [vector_of(text) for text in TEXTS]
        assert await embedder.embed_query(TEXTS[0]) == vector_of(TEXTS[0])
        assert await embedder.embed_query(" ") is None
    assert server.requests == [TEXTS, TEXTS[:1]]
    is_google = name.startswith("gemini")
    assert server.paths[0].endswith("small:batchEmbedContents" if is_google else "/embeddings")
    if not is_google:
        assert server.bodies[0] == {"model": "small", "input": TEXTS, "encoding_format": "float"}


@pytest.mark.parametrize("name", NAMES)
async def test_an_error_of_the_server_is_an_error_of_the_model(
    name: str, server: EmbeddingServer
) -> None:
    async with opened(name, server.url) as embedder:
        for status, error in (
            (400, BadRequestError),
            (401, AuthenticationError),
            (503, ModelUnavailableError),
        ):
            server.status = status
            with pytest.raises(error):
                await embedder.embed(TEXTS)
    async with opened(name, "http://127.0.0.1:9") as embedder:
        with pytest.raises(ModelUnavailableError):
            await embedder.embed(TEXTS)


async def test_an_answer_that_is_not_whole_is_refused() -> None:
    class Short:
        def __init__(self) -> None:
            self.answer = [[1.0]]

        async def embed(self, model: str, texts: object) -> list[list[float]]:
            del model, texts
            return self.answer

    provider = Short()
    embedder = Embedder(provider, "some:model", "model")
    assert await embedder.embed(["a"]) == [[1.0]]
    wrong: list[list[list[float]]] = [[], [[1.0], [1.0]], [[]], [[0.0]], [[float("nan")]]]
    for provider.answer in wrong:
        with pytest.raises(BadStreamError):
            await embedder.embed(["a"])


async def test_a_query_has_a_deadline_and_its_failure_is_logged_once(
    server: EmbeddingServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(embeddings, "QUERY_WITHIN", 0.2)
    caplog.set_level(logging.WARNING, embeddings.__name__)
    async with opened("openai:small", server.url) as embedder:
        server.open.clear()
        assert await embedder.embed_query("cat") is None
        assert await embedder.embed_query("cat") is None
        server.open.set()
        monkeypatch.setattr(embeddings, "QUERY_WITHIN", 60.0)
        assert len(caplog.messages) == 1
        assert "openai:small" in caplog.text
        assert "words alone" in caplog.text
        assert await embedder.embed_query("cat") == vector_of("cat")
        server.status = 500
        assert await embedder.embed_query("cat") is None
        assert len(caplog.messages) == 2


async def test_texts_have_a_deadline(server: EmbeddingServer) -> None:
    server.open.clear()
    async with opened("openai:small", server.url) as embedder:
        with pytest.raises(ModelTimeoutError):
            await embedder.embed(TEXTS, within=0.1)


@pytest.mark.parametrize("name", ["anthropic:model", "scripted:demo", "unknown:model", "openai"])
def test_a_name_without_embeddings_is_refused(name: str) -> None:
    with pytest.raises(UnknownModelError):
        resolve_embedder(name)


async def test_the_local_model_embeds() -> None:
    missing = skipped_without(NoEnvironmentError, "local model")
    with missing, local_model.served(embeddings=True) as url:
        async with opened("llamacpp:local", url) as embedder:
            vectors = await embedder.embed(TEXTS)
            query = await embedder.embed_query(TEXTS[0])
    assert [len(vector) for vector in vectors] == [576, 576]
    assert query == pytest.approx(vectors[0], abs=1e-3)
