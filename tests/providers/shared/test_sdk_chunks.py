"""The events of an answer are those of the chunks that the vendor's own SDK reads."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from faults.models.canned import Canned, anthropic_client, canned_provider, openai_client
from lango.core.messages.streams import (
    Done,
    ReasoningDone,
    StreamEvent,
    StreamEventError,
    ToolCallDone,
)
from lango.core.values import JsonObject
from lango.errors import ModelError
from lango.providers import anthropic, openai_chat, openai_responses
from lango.providers.policy.timeouts import Timeouts
from lango.providers.shared import openai_sdk
from lango.providers.shared.decoding import decoded
from lango.providers.shared.sse import EventStreamParser
from lango.testing.wires import WIRES, ScriptedAnswer
from tests.providers.conversation import ask, events_of, say
from tests.providers.test_splitting import ANSWERS

MODEL = "a-model"
CANNED = Canned()
OPENAI: Any = openai_client(CANNED)
ANTHROPIC: Any = anthropic_client(CANNED)
SAID = [{"role": "user", "content": "hello"}]
Create = Callable[[], Awaitable[AsyncIterator[Any]]]
SDKS: dict[str, tuple[Create, Any, Any]] = {
    "openai_chat": (
        partial(OPENAI.chat.completions.create, model=MODEL, messages=SAID, stream=True),
        openai_chat.StreamDecoder,
        openai_sdk.explain,
    ),
    "openai_responses": (
        partial(OPENAI.responses.create, model=MODEL, input="hello", stream=True),
        openai_responses.StreamDecoder,
        openai_sdk.explain,
    ),
    "anthropic": (
        partial(ANTHROPIC.messages.create, model=MODEL, max_tokens=9, messages=SAID, stream=True),
        anthropic.StreamDecoder,
        anthropic.explain,
    ),
}
PROVIDERS = {wire: canned_provider(wire, CANNED) for wire in SDKS}
SIZES = st.lists(st.integers(1, 400), min_size=1, max_size=4).map(tuple)
EXTRAS = st.sampled_from(
    [
        ": keep-alive\n\n",
        "event: ping\ndata: {}\n\n",
        'event: new\ndata: {"type": "new"}\n\n',
        'data: {"choices": [{"delta":\ndata: {"content": "é"}}]}\n\n',
        'data: {"type": "response.output_text.delta", "item_id": "m",\ndata: "delta": "é"}\n\n',
        'data: {"error": {"message": "Slow down.", "code": "rate_limit_exceeded"}}\n\n',
        'event: error\ndata: {"type": "error", "error": {"type": "overloaded_error"}}\n\n',
        'event: message_delta\ndata: {"delta": {"stop_reason": "max_tokens"}, "usage": null}\n\n',
        "data: [DONE]\n\n",
        "event: message_stop\ndata: null\n\n",
    ]
)


async def dicts(create: Create) -> AsyncIterator[JsonObject]:
    """The SDK's typed chunks, as the objects they were made of."""
    stream = await create()

    async def read() -> AsyncIterator[JsonObject]:
        async for chunk in stream:
            yield chunk.to_dict(warnings=False) if hasattr(chunk, "to_dict") else chunk

    return read()


def by_the_sdk(wire: str) -> list[StreamEvent]:
    create, decoder, explain = SDKS[wire]

    async def run() -> list[StreamEvent]:
        call = partial(dicts, create)
        return await events_of(decoded(call, decoder(ask(MODEL)), explain, Timeouts()))

    return asyncio.run(run())


def by_lango(wire: str) -> list[StreamEvent]:
    return asyncio.run(say(PROVIDERS[wire], ask(MODEL)))


def comparable(event: StreamEvent) -> object:
    """Without ids that are made up, and with what is opaque and an error by content."""
    if isinstance(event, ToolCallDone):
        return event.call.name, event.call.input
    if isinstance(event, ReasoningDone):
        return event.reasoning.text, json.loads(event.reasoning.opaque or "null")
    if isinstance(event, StreamEventError):
        assert isinstance(event.error, ModelError)
        return event.error.__class__, event.error.partial_text
    return event


def frames_of(wire: str, data: st.DataObject) -> list[bytes]:
    answer = data.draw(ANSWERS)
    frames = [frame.data for frame in WIRES[wire].frames(answer, MODEL)]
    for extra in data.draw(st.lists(EXTRAS, max_size=3)):
        frames.insert(data.draw(st.integers(0, len(frames))), extra.encode())
    return frames


@settings(max_examples=20)
@given(answer=ANSWERS, sizes=SIZES)
def test_a_stream_in_amazon_s_framing_is_left_to_the_sdk(
    answer: ScriptedAnswer, sizes: tuple[int, ...]
) -> None:
    """Bedrock's client has a parser of its own for it; Anthropic's reads the body as it is here."""
    wire = "anthropic"
    body = b"".join(frame.data for frame in WIRES[wire].frames(answer, MODEL))
    canned = Canned(body, sizes, "application/vnd.amazon.eventstream")
    with pytest.MonkeyPatch.context() as patched:
        patched.delattr(EventStreamParser, "feed")
        by_sdk = asyncio.run(say(canned_provider(wire, canned), ask(MODEL)))
    plain = replace(canned, media_type="text/event-stream")
    by_lango = asyncio.run(say(canned_provider(wire, plain), ask(MODEL)))
    assert list(map(comparable, by_sdk)) == list(map(comparable, by_lango))
    assert isinstance(by_sdk[-1], Done)


@pytest.mark.parametrize("wire", list(SDKS))
@settings(max_examples=50)
@given(data=st.data(), sizes=SIZES, end=st.sampled_from([b"\n", b"\r\n", b"\r"]))
def test_the_same_events(
    wire: str, data: st.DataObject, sizes: tuple[int, ...], end: bytes
) -> None:
    body = b"".join(frames_of(wire, data)).replace(b"\n", end)
    cut = data.draw(st.integers(0, len(body)) | st.just(len(body)))
    CANNED.data, CANNED.sizes, CANNED.breaks = body[:cut], sizes, data.draw(st.booleans())
    assert list(map(comparable, by_lango(wire))) == list(map(comparable, by_the_sdk(wire)))
