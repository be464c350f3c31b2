"""Chunks as JSON objects: what other servers send, and what no server should."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import openai
import pytest

from faults.models.canned import Canned, canned_provider
from lango.core.messages.streams import StreamEvent, ThoughtDelta, Usage
from lango.errors import (
    BadStreamError,
    ModelError,
    ModelTimeoutError,
    ModelUnavailableError,
    RateLimitedError,
)
from lango.providers.openai_chat import OpenAIChatProvider
from lango.providers.policy.timeouts import Timeouts
from lango.providers.shared import decoding
from lango.testing.wires import ScriptedAnswer, WireServer
from tests.providers.conversation import ask, done_of, error_of, say, text_of

CHAT, RESPONSES, ANTHROPIC = "openai_chat", "openai_responses", "anthropic"
END = {
    CHAT: 'data: {"choices": [{"finish_reason": "stop"}]}\n\ndata: [DONE]\n\n',
    RESPONSES: 'data: {"type": "response.completed", "response": {}}\n\n',
    ANTHROPIC: 'event: message_delta\ndata: {"delta": {"stop_reason": "end_turn"}}\n\n',
}
BLOCK = 'event: content_block_start\ndata: {"content_block": {"type": "text"}}\n\n'
TEXT = {
    CHAT: 'data: {"choices": [{"delta": {"content": "Hi"}}]}\n\n',
    RESPONSES: 'data: {"type": "response.output_text.delta", "delta": "Hi"}\n\n',
    ANTHROPIC: BLOCK + 'event: content_block_delta\ndata: {"delta": {"type": "text_delta", '
    '"text": "Hi"}}\n\n',
}


async def told(wire: str, body: str, *, size: int = 1 << 20) -> list[StreamEvent]:
    """What comes of a body."""
    data = body.encode("utf-8", "surrogatepass")
    return await say(canned_provider(wire, Canned(data, (size,))), ask())


@pytest.mark.parametrize("wire", TEXT)
@pytest.mark.parametrize("size", [1, 7, 1 << 20])
async def test_least_fields_comments_and_line_ends(wire: str, size: int) -> None:
    body = f": keep-alive\n\n{TEXT[wire]}: keep-alive\n\nid: 1\nretry: 5\n\n{END[wire]}"
    for end in ("\n", "\r\n", "\r"):
        events = await told(wire, body.replace("\n", end), size=size)
        assert text_of(events) == "Hi"
        assert done_of(events).finish_reason == "stop"


async def test_events_without_their_names() -> None:
    named = TEXT[ANTHROPIC] + END[ANTHROPIC]
    nameless = re.sub(r"event: (\w+)\ndata: \{", r'data: {"type": "\1", ', named)
    assert "event:" not in nameless
    ping = 'data: {"type": "ping"}\n\ndata: {"new": 1}\n\ndata: pong\n\n'
    assert text_of(await told(ANTHROPIC, ping + nameless)) == "Hi"
    report = 'data: {"type": "error", "error": {"type": "rate_limit_error", "message": "Slow"}}\n\n'
    assert type(error_of(await told(ANTHROPIC, report))) is RateLimitedError


async def in_json(wire: str, body: object, *, size: int = 1 << 20) -> list[StreamEvent]:
    """What comes of a body that is no event stream."""
    data = b"\n " + json.dumps(body, indent=1).encode()
    return await say(canned_provider(wire, Canned(data, (size,), "application/json")), ask())


@pytest.mark.parametrize("size", [1, 7, 1 << 20])
async def test_an_answer_that_is_not_streamed(size: int) -> None:
    message = {"role": "assistant", "content": "Hi"}
    usage = {"prompt_tokens": 3, "completion_tokens": 1}
    body = {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}], "usage": usage}
    events = await in_json(CHAT, body, size=size)
    assert (text_of(events), done_of(events).usage) == ("Hi", Usage(input=3, output=1))


@pytest.mark.parametrize(
    ("wire", "error"),
    [
        (CHAT, {"code": 429, "message": "Slow"}),
        (RESPONSES, {"code": "rate_limit_exceeded", "message": "Slow"}),
        (ANTHROPIC, {"type": "rate_limit_error", "message": "Slow"}),
    ],
)
async def test_an_error_with_the_status_of_an_answer(wire: str, error: object) -> None:
    found = error_of(await in_json(wire, {"type": "error", "error": error}))
    assert type(found) is RateLimitedError
    assert "Slow" in str(found)


@pytest.mark.parametrize("wire", TEXT)
async def test_data_over_several_lines(wire: str) -> None:
    spread = (TEXT[wire] + END[wire]).replace(', "', ',\ndata: "')
    assert text_of(await told(wire, spread)) == "Hi"


@pytest.mark.parametrize("wire", TEXT)
async def test_unknown_kinds_are_ignored(wire: str) -> None:
    new = 'event: new\ndata: {"type": "new", "choices": []}\n\n'
    assert text_of(await told(wire, new + TEXT[wire] + new + END[wire])) == "Hi"


@pytest.mark.parametrize("wire", TEXT)
@pytest.mark.parametrize("end", ["", "data: [DONE]\n\n", ": bye\n\n"])
async def test_an_answer_without_its_end(wire: str, end: str) -> None:
    error = error_of(await told(wire, TEXT[wire] + end))
    assert isinstance(error, BadStreamError)
    assert error.partial_text == "Hi"


@pytest.mark.parametrize("wire", TEXT)
@pytest.mark.parametrize("data", ["null", "[]", '"text"', "5", "{", "nonsense", '{"a": "\x01"}'])
async def test_data_that_is_no_object(wire: str, data: str) -> None:
    name = "event: message_start\n" if wire == ANTHROPIC else ""
    error = error_of(await told(wire, f"{TEXT[wire]}{name}data: {data}\n\n{END[wire]}"))
    assert isinstance(error, BadStreamError)
    assert error.partial_text == "Hi"


def kind(name: str, fields: str) -> str:
    return f'event: {name}\ndata: {{"type": "{name}", {fields}}}\n\n'


@pytest.mark.parametrize(
    ("wire", "body"),
    [
        (CHAT, 'data: {"choices": "text"}\n\n'),
        (CHAT, 'data: {"choices": [null]}\n\n'),
        (CHAT, 'data: {"choices": ["text"]}\n\n'),
        (CHAT, 'data: {"usage": "much"}\n\n'),
        (CHAT, 'data: {"usage": {"prompt_tokens": [1]}}\n\n'),
        (CHAT, 'data: {"choices": [{"delta": "text"}]}\n\n'),
        (CHAT, 'data: {"choices": [{"delta": {"content": 5}}]}\n\n'),
        (CHAT, 'data: {"choices": [{"delta": {"content": ["part"]}}]}\n\n'),
        (CHAT, 'data: {"choices": [{"delta": {"tool_calls": ["add"]}}]}\n\n'),
        (CHAT, 'data: {"choices": [{"delta": {"tool_calls": [{"function": "add"}]}}]}\n\n'),
        (CHAT, 'data: {"choices": [{"delta": {"tool_calls": [{"id": {"a": 1}}]}}]}\n\n'),
        (CHAT, 'data: {"choices": [{"finish_reason": ["stop"]}]}\n\n'),
        (RESPONSES, kind("response.output_text.delta", '"delta": 5')),
        (RESPONSES, kind("response.output_text.delta", '"item_id": [1], "delta": "Hi"')),
        (RESPONSES, kind("response.output_item.added", '"item": null')),
        (RESPONSES, kind("response.output_item.done", '"item": "call"')),
        (RESPONSES, kind("response.completed", '"response": null')),
        (RESPONSES, 'data: {"type": ["response.completed"]}\n\n'),
        (ANTHROPIC, kind("message_start", '"message": null')),
        (ANTHROPIC, kind("content_block_start", '"content_block": "text"')),
        (ANTHROPIC, kind("content_block_start", '"index": {}, "content_block": {}')),
        (ANTHROPIC, kind("content_block_delta", '"index": 9, "delta": {"type": "text_delta"}')),
        (ANTHROPIC, kind("content_block_stop", '"index": 9')),
        (ANTHROPIC, BLOCK + kind("content_block_delta", '"delta": null')),
        (ANTHROPIC, kind("message_delta", '"delta": null')),
        (ANTHROPIC, kind("message_delta", '"delta": {}, "usage": "much"')),
    ],
)
async def test_wrong_types_are_a_bad_stream(wire: str, body: str) -> None:
    error = error_of(await told(wire, body + END[wire]))
    assert type(error) is BadStreamError
    assert "Error:" not in str(error)  # ours, not a mapped AttributeError


@pytest.mark.parametrize(
    "body",
    [
        'data: {"id": null, "model": null, "usage": null, "choices": null}\n\n',
        'data: {"choices": [{"index": null, "delta": null, "finish_reason": null}]}\n\n',
        'data: {"choices": [{"delta": {"content": null, "tool_calls": null}}]}\n\n',
        'data: {"choices": [{"delta": {"refusal": null, "reasoning": null}}]}\n\n',
        'data: {"model": 5, "choices": [], "usage": {}}\n\n',
        'data: {"choices": [{"index": 1, "delta": {"content": "another answer"}}]}\n\n',
    ],
)
async def test_nulls_and_odd_fields_of_other_servers(body: str) -> None:
    events = await told(CHAT, body + TEXT[CHAT] + body + END[CHAT])
    assert (text_of(events), done_of(events).model) == ("Hi", "a-model")


async def test_counts_as_text_and_null() -> None:
    usage = '{"prompt_tokens": "9", "completion_tokens": 5.0, "prompt_tokens_details": []}'
    events = await told(CHAT, f'{TEXT[CHAT]}data: {{"usage": {usage}}}\n\n{END[CHAT]}')
    assert done_of(events).usage == Usage(input=9, output=5)


async def test_halves_of_a_character_in_two_chunks() -> None:
    half = 'data: {{"choices": [{{"delta": {{"{}": "{}"}}}}]}}\n\n'
    body = "".join(
        half.format(field, escape)
        for field in ("content", "reasoning")
        for escape in ("\\ud83d", "\\ude00")
    )
    events = await told(CHAT, body + END[CHAT])
    assert text_of(events) == "😀"
    assert ThoughtDelta("😀") in events


@pytest.mark.parametrize(
    ("wire", "report", "error", "message"),
    [
        (CHAT, 'data: {"error": {"message": "Slow", "code": 429}}', RateLimitedError, "Slow"),
        (CHAT, 'data: {"error": {"type": "server_error"}}', ModelUnavailableError, "reported"),
        (
            CHAT,
            'event: error\ndata: {"message": "Slow", "code": "429"}',
            RateLimitedError,
            "Slow",
        ),
        (CHAT, 'data: {"error": "Out of memory"}', ModelUnavailableError, "Out of memory"),
        (
            RESPONSES,
            'event: error\ndata: {"type": "error", "code": "server_error", "message": "Sorry"}',
            ModelUnavailableError,
            "Sorry",
        ),
        (
            RESPONSES,
            'data: {"error": {"code": "rate_limit_exceeded", "message": "Slow"}}',
            RateLimitedError,
            "Slow",
        ),
        (
            ANTHROPIC,
            'event: error\ndata: {"error": {"type": "rate_limit_error", "message": "Slow"}}',
            RateLimitedError,
            "Slow",
        ),
        (ANTHROPIC, "event: error\ndata: Overloaded", ModelUnavailableError, "Overloaded"),
        (ANTHROPIC, "event: error", ModelUnavailableError, "reported"),
    ],
)
async def test_errors_in_the_stream(
    wire: str, report: str, error: type[ModelError], message: str
) -> None:
    found = error_of(await told(wire, f"{TEXT[wire]}{report}\n\n{END[wire]}"))
    assert type(found) is error
    assert message in str(found)
    assert found.partial_text == "Hi"
    # From the finish marker on the answer is whole.
    assert text_of(await told(wire, f"{TEXT[wire]}{END[wire]}{report}\n\n")) == "Hi"


class _Body(httpx2.AsyncByteStream):
    """Chunks, and then silence until it is closed."""

    def __init__(self, data: str) -> None:
        self._data = data.encode()
        self.closed = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield self._data
        await asyncio.Event().wait()

    async def aclose(self) -> None:
        self.closed = True


def provider_of(*replies: Any, retries: int = 0, idle: float = 30.0) -> OpenAIChatProvider:
    """A provider on a client that gets these replies, one after the other."""
    waiting = iter(replies)
    transport = httpx2.MockTransport(lambda _: next(waiting))
    client = openai.AsyncOpenAI(
        api_key="k", max_retries=retries, http_client=httpx2.AsyncClient(transport=transport)
    )
    return OpenAIChatProvider(client=client, timeouts=Timeouts(idle=idle))


async def test_the_rest_after_the_end_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoding, "AFTERWORD", 3600.0)
    body = _Body(TEXT[CHAT] + END[CHAT])
    provider = provider_of(httpx2.Response(200, stream=body), idle=3600.0)
    async with asyncio.timeout(60):  # the SDK and lango would wait for an hour
        events = await say(provider, ask())
    assert text_of(events) == "Hi"
    assert body.closed


async def test_silence_ends_the_answer_and_closes_the_connection() -> None:
    body = _Body(TEXT[CHAT] + ": keep-alive\n\n")
    provider = provider_of(httpx2.Response(200, stream=body), idle=0.5)
    await provider.warm_up()  # else the SDK's import may take longer than that
    assert isinstance(error_of(await say(provider, ask())), ModelTimeoutError)
    assert body.closed


async def test_cancelling_closes_the_connection() -> None:
    body = _Body(TEXT[CHAT])
    stream = provider_of(httpx2.Response(200, stream=body)).stream(ask())
    await anext(stream)
    waiting = asyncio.ensure_future(anext(stream))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert waiting.cancelled()
    assert body.closed


async def test_a_client_that_retries_does_so_before_the_stream() -> None:
    refused = httpx2.Response(429, headers={"retry-after-ms": "1"}, json={"error": {}})
    whole = httpx2.Response(200, text=TEXT[CHAT] + END[CHAT])
    assert text_of(await say(provider_of(refused, whole, retries=1), ask())) == "Hi"


@pytest.mark.parametrize("wire", TEXT)
async def test_a_connection_is_used_again(wire: str) -> None:
    async with WireServer(wire, ScriptedAnswer("Hello.")) as server:
        provider = server.provider()
        for _ in range(3):
            assert text_of(await say(provider, ask())) == "Hello."
        assert server.connections == 1
