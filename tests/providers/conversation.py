"""A conversation with all that a history can hold, and ways to ask about it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from typing import Any, Final

from lango.core.messages.messages import Media, Message, Reasoning, ToolCall
from lango.core.messages.streams import (
    Done,
    ReasoningDone,
    StreamEvent,
    StreamEventError,
    TextDelta,
    ToolCallDone,
)
from lango.errors import ModelError
from lango.providers.base import ModelRequest, Provider, ToolSpec

PIXEL: Final = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010806000000"
    "1f15c4890000000d4944415478da63fcffff3f0300050001ff5bb8b80c0000000049454e44ae426082"
)
IMAGE: Final = Media("image/png", PIXEL, name="dot.png")
ADD: Final = ToolSpec(
    "add",
    "Add two numbers.",
    {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "required": ["a", "b"],
    },
)
NOW: Final = ToolSpec("now", "Tell the time.", {"type": "object", "properties": {}})
TOOLS: Final = (ADD, NOW)
SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {"sum": {"type": "integer", "minimum": 0}, "unit": {"type": "string"}},
    "required": ["sum", "unit"],
}

TALK: Final = (
    Message("system", "Be brief."),
    Message("user", "What is this, and what is two and three?", media=(IMAGE,)),
    Message(
        "assistant",
        "A dot. Let me add.",
        (ToolCall("call_1", "add", '{"a": 2, "b": 3}'), ToolCall("call_2", "now", "{}")),
        reasoning=(Reasoning("I should add.", "elsewhere", "m", "opaque data"),),
    ),
    Message("tool", '{"sum":5}', (ToolCall("call_1", "add", output='{"sum":5}'),)),
    Message(
        "tool",
        '{"time":"noon"}',
        (ToolCall("call_2", "now", output='{"time":"noon"}'),),
        media=(IMAGE,),
    ),
)


def ask(model: str = "a-model", messages: Iterable[Message] = TALK, **options: Any) -> ModelRequest:
    """A request about the conversation."""
    options.setdefault("tools", TOOLS)
    return ModelRequest(model, list(messages), **options)


async def events_of(stream: AsyncIterator[StreamEvent]) -> list[StreamEvent]:
    """Everything a provider says."""
    return [event async for event in stream]


def text_of(events: Iterable[StreamEvent]) -> str:
    """The text in the deltas."""
    return "".join(event.text for event in events if isinstance(event, TextDelta))


def calls_of(events: Iterable[StreamEvent]) -> list[ToolCall]:
    """The calls."""
    return [event.call for event in events if isinstance(event, ToolCallDone)]


def done_of(events: list[StreamEvent]) -> Done:
    """The end, which must be a proper one."""
    assert isinstance(events[-1], Done), events[-1]
    return events[-1]


def error_of(events: list[StreamEvent]) -> ModelError:
    """The error at the end, which must be one of ours."""
    last = events[-1]
    assert isinstance(last, StreamEventError), last
    assert isinstance(last.error, ModelError), last.error
    return last.error


def message_of(events: Iterable[StreamEvent]) -> Message:
    """An answer as the history keeps it."""
    events_read = list(events)
    thoughts = tuple(event.reasoning for event in events_read if isinstance(event, ReasoningDone))
    return Message(
        "assistant", text_of(events_read), tuple(calls_of(events_read)), reasoning=thoughts
    )


def results_of(message: Message) -> list[Message]:
    """Results for the calls of a message."""
    return [
        Message("tool", '{"sum":5}', (ToolCall(call.id, call.name, output='{"sum":5}'),))
        for call in message.tool_calls
    ]


async def say(provider: Provider, request: ModelRequest) -> list[StreamEvent]:
    """The events of one answer."""
    return await events_of(provider.stream(request))
