"""The events of a model's streamed answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from lango.core.messages.messages import Reasoning, ToolCall

FinishReason = Literal["stop", "tool_calls", "length", "content_filter", "other"]


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens as the provider counts them.

    `cached` and `written` are the parts of the input read from and written to the provider's
    cache; `reasoning` is part of the output.
    """

    input: int = 0
    output: int = 0
    cached: int = 0
    reasoning: int = 0
    written: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.input + other.input,
            self.output + other.output,
            self.cached + other.cached,
            self.reasoning + other.reasoning,
            self.written + other.written,
        )


@dataclass(frozen=True, slots=True)
class TextDelta:
    """More text."""

    text: str


@dataclass(frozen=True, slots=True)
class ThoughtDelta:
    """More of the model's reasoning, as text for people."""

    text: str


@dataclass(frozen=True, slots=True)
class ReasoningDone:
    """One finished piece of reasoning, with the data that its model family wants back."""

    reasoning: Reasoning


@dataclass(frozen=True, slots=True)
class ToolCallDone:
    """One complete tool call; its arguments are valid JSON."""

    call: ToolCall


@dataclass(frozen=True, slots=True)
class Done:
    """The end as marked by the provider. A stream without it is broken."""

    finish_reason: FinishReason
    usage: Usage | None = None
    model: str = ""
    request_id: str = ""


@dataclass(frozen=True, slots=True)
class StreamEventError:
    """The end by a fault: an error to raise, which keeps the text received before it."""

    error: Exception


StreamEvent = TextDelta | ThoughtDelta | ReasoningDone | ToolCallDone | Done | StreamEventError
