"""The scripted replies and faults of a model server."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from lango.core.messages.streams import FinishReason, Usage

Trouble = Literal[
    "rate_limited", "failing", "overloaded", "too_long", "no_key", "bad_request", "no_model"
]
Break = Literal["no_finish", "zero_bytes", "empty", "html", "error", "cut", "stall", "half_call"]


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call; id and arguments are sent unchanged, even if invalid."""

    name: str
    arguments: str = "{}"
    id: str | None = "call_1"


@dataclass(frozen=True, slots=True)
class ScriptedAnswer:
    """One answer of the model."""

    text: str = ""
    calls: tuple[Call, ...] = ()
    thoughts: str = ""
    signature: str = ""  # what the family wants back with its reasoning
    finish: FinishReason | None = None  # None: stop, or tool_calls when there are calls
    usage: Usage = field(default_factory=lambda: Usage(input=12, output=7))
    delta: int = 5  # characters per delta

    @property
    def finish_reason(self) -> FinishReason:
        """The finish reason."""
        return self.finish or ("tool_calls" if self.calls else "stop")

    def pieces(self, text: str) -> list[str]:
        """A text in deltas."""
        return [text[start : start + self.delta] for start in range(0, len(text), self.delta)]


@dataclass(frozen=True, slots=True)
class Refusal:
    """An error in the vendor's format, instead of an answer."""

    trouble: Trouble
    status: int | None = None  # None: the vendor's
    retry_after: str = ""


@dataclass(frozen=True, slots=True)
class Broken:
    """An answer that breaks while it is sent.

    `at` is the byte of the stream for "cut" and "stall"; the middle if negative.
    """

    fault: Break
    answer: ScriptedAnswer = field(
        default_factory=lambda: ScriptedAnswer("This will not end well.")
    )
    at: int = -1


Reply = ScriptedAnswer | Refusal | Broken


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame of a stream, in the vendor's format."""

    data: bytes
    finish: bool = False  # part of the stream's end marker
    opens_call: bool = False
