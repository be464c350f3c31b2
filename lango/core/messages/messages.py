"""Messages and tool calls: the types shared by history, store and providers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

TOOL_ROLES: Final = frozenset({"tool", "function"})
ASSISTANT_ROLES: Final = frozenset({"assistant", "model"})
CONTROL: Final = "control"


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool call (`input`) or its result (`output`), both as JSON text."""

    id: str
    name: str
    input: str = ""
    output: str = ""


@dataclass(frozen=True, slots=True)
class Media:
    """An image, sound or file for the model: its bytes, or their URI."""

    mime_type: str
    data: bytes = b""
    uri: str = ""
    name: str = ""


@dataclass(frozen=True, slots=True)
class Reasoning:
    """A model's reasoning: text for people, and opaque data for its own model family."""

    text: str = ""
    provider: str = ""
    model: str = ""
    opaque: str = ""  # from the provider; sent back byte for byte or not at all


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a conversation; a tool message's content is its outputs, as JSON."""

    role: str
    content: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    author: str = ""
    media: tuple[Media, ...] = ()
    reasoning: tuple[Reasoning, ...] = ()

    @property
    def is_tool(self) -> bool:
        """Whether this message holds results of tool calls."""
        return self.role in TOOL_ROLES

    @property
    def is_assistant(self) -> bool:
        """Whether an agent wrote this message."""
        return self.role in ASSISTANT_ROLES
