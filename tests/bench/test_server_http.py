"""The clients that measure servers, and what is known of a server's process."""

import asyncio
import os
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from google.adk.models.llm_request import LlmRequest
from google.genai import types

from bench.server.http_client import Request, ask
from bench.server.process import cpu_of, memory, peak_memory
from bench.server.server_agent import agent

HEAD = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"


class Slow:
    """A server that sends the parts of its answer that it is given."""

    def __init__(self) -> None:
        self.parts: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.asked: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self.base = ""

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.asked.set_result(await reader.readuntil(b"}"))
        while part := await self.parts.get():
            writer.write(part)
            await writer.drain()
        writer.close()


@pytest_asyncio.fixture
async def slow() -> AsyncIterator[Slow]:
    made = Slow()
    async with await asyncio.start_server(made.answer, "127.0.0.1", 0) as server:
        host, port = server.sockets[0].getsockname()
        made.base = f"http://{host}:{port}"
        yield made


async def test_when_which_bytes_came_is_noted(slow: Slow) -> None:
    asking = asyncio.create_task(ask(slow.base, Request("/turns", {"a": 1}), b"word"))
    sent = await slow.asked
    assert sent.startswith(b"POST /turns HTTP/1.1\r\nHost: 127.0.0.1\r\n")
    assert sent.endswith(b'Content-Length: 8\r\n\r\n{"a": 1}')
    for part in (HEAD, b'{"said": ', b'"a wo', b'rd"}', None):
        slow.parts.put_nowait(part)
    reply = await asking
    assert (reply.status, reply.json()) == (200, {"said": "a word"})
    assert reply.first_mark is not None
    assert 0 < reply.first_byte <= reply.first_mark <= reply.whole


async def test_an_answer_without_the_mark_has_no_time_of_it(slow: Slow) -> None:
    for part in (b"HTTP/1.1 500 Oh\r\n\r\n{}", None):
        slow.parts.put_nowait(part)
    reply = await ask(slow.base, Request("/turns", {}), b"word")
    assert reply.first_mark is None
    with pytest.raises(ValueError, match="500"):
        reply.json()


def test_a_process_is_known_by_its_number() -> None:
    own = os.getpid()
    assert 0 < cpu_of(own) <= sum(os.times()[:2]) + 1
    assert 1 < memory(own) <= peak_memory(own) < 100_000
    assert cpu_of(2**22 + 1) == 0  # beyond what Linux gives


@pytest.mark.parametrize("words", [0, 3])
async def test_the_model_says_as_many_words_as_it_is_asked_for(words: int) -> None:
    model_request = LlmRequest(contents=[types.UserContent(str(words))])
    model = agent.root_agent.canonical_model
    text = [each async for each in model.generate_content_async(model_request, stream=True)]
    texts = [part.text or "" for each in text if each.content for part in each.content.parts or ()]
    assert [each.partial for each in text[:-1]] == [True] * (words + 1)
    assert texts[-1] == "".join(texts[:-1])
    assert texts[-2] == "over."
