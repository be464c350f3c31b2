"""What a model's answer is made of, as it arrives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from lango.core.messages import Reasoning, ToolCall

FinishReason = Literal["stop", "tool_calls", "length", "content_filter", "other"]


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens as the provider counts them.

    Of the input, `cached` were read from the provider's cache and `written` put into it;
    `reasoning` is part of the output.
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
    """More of what the model thinks, for people to see."""

    text: str


@dataclass(frozen=True, slots=True)
class ReasoningDone:
    """One finished piece of reasoning, with the data its own family wants back."""

    reasoning: Reasoning


@dataclass(frozen=True, slots=True)
class ToolCallDone:
    """One tool call, complete: its arguments are whole and valid JSON."""

    call: ToolCall


@dataclass(frozen=True, slots=True)
class Done:
    """The end, as the provider marked it. A stream without it is broken."""

    finish_reason: FinishReason
    usage: Usage | None = None
    model: str = ""
    request_id: str = ""


@dataclass(frozen=True, slots=True)
class StreamEventError:
    """The end, by a fault: an error to raise, which keeps the text that came before it."""

    error: Exception


StreamEvent = TextDelta | ThoughtDelta | ReasoningDone | ToolCallDone | Done | StreamEventError
