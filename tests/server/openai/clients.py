"""Clients of OpenAI's API as people have them: OpenAI's own SDK, and LangChain's."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Any

import openai
from langchain_openai import ChatOpenAI
from pydantic import SecretStr

from tests.server.served_apps import PATIENCE, Live

Message = dict[str, str]
Say = Callable[[list[Message]], Awaitable[str]]
"""Says the last of some messages to an agent, and returns its answer."""


def user(text: str) -> Message:
    return {"role": "user", "content": text}


def assistant(text: str) -> Message:
    return {"role": "assistant", "content": text}


def sdk(server: Live, key: str = "ann", *, retries: int = 0) -> Any:
    """OpenAI's client, which sends what it sends by default."""
    return openai.AsyncOpenAI(
        api_key=key, base_url=f"{server.url}/openai/v1", max_retries=retries, timeout=PATIENCE
    )


async def answered(client: Any, model: str, messages: list[Message], **more: Any) -> str:
    answer = await client.chat.completions.create(model=model, messages=messages, **more)
    assert answer.choices[0].finish_reason == "stop"
    return answer.choices[0].message.content


async def streamed(client: Any, model: str, messages: list[Message], **more: Any) -> str:
    """The answer by its chunks, and each checked."""
    stream = await client.chat.completions.create(
        model=model, messages=messages, stream=True, **more
    )
    chunks = [chunk async for chunk in stream]
    assert chunks[0].choices[0].delta.role == "assistant"
    assert chunks[-1].usage.total_tokens > 0
    ends = [choice.finish_reason for chunk in chunks for choice in chunk.choices]
    assert ends[-1] == "stop"
    assert ends.count(None) == len(ends) - 1
    deltas = [choice.delta.content or "" for chunk in chunks for choice in chunk.choices]
    return "".join(deltas)


@asynccontextmanager
async def _openai_whole(server: Live) -> AsyncGenerator[Say]:
    async with sdk(server) as client:
        yield partial(answered, client, server.served.agent)


@asynccontextmanager
async def _openai_streamed(server: Live) -> AsyncGenerator[Say]:
    async with sdk(server) as client:
        yield partial(streamed, client, server.served.agent)


@asynccontextmanager
async def _langchain(server: Live) -> AsyncGenerator[ChatOpenAI]:
    # Its own connections it keeps for the whole process, whichever loop they belong to.
    async with openai.DefaultAsyncHttpxClient(timeout=PATIENCE) as web:
        yield ChatOpenAI(
            model=server.served.agent,
            base_url=f"{server.url}/openai/v1",
            api_key=SecretStr("ann"),
            http_async_client=web,
        )


@asynccontextmanager
async def _langchain_whole(server: Live) -> AsyncGenerator[Say]:
    async with _langchain(server) as model:

        async def say(said: list[Message]) -> str:
            answer = await model.ainvoke(list(said))
            assert answer.response_metadata["finish_reason"] == "stop"
            assert answer.usage_metadata
            assert answer.usage_metadata["total_tokens"] > 0
            return str(answer.text)

        yield say


@asynccontextmanager
async def _langchain_streamed(server: Live) -> AsyncGenerator[Say]:
    async with _langchain(server) as model:

        async def say(said: list[Message]) -> str:
            chunks = [chunk async for chunk in model.astream(list(said))]
            assert len(chunks) > 2
            return "".join(str(chunk.text) for chunk in chunks)

        yield say


CLIENTS: dict[str, Callable[[Live], AbstractAsyncContextManager[Say]]] = {
    "openai": _openai_whole,
    "openai-streamed": _openai_streamed,
    "langchain": _langchain_whole,
    "langchain-streamed": _langchain_streamed,
}
