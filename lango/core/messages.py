"""A message, and the tool calls in it: the words shared by history, store and providers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

Role = Literal["user", "assistant", "tool", "system", "control"]
"""What we write. Rows of older systems may also say "model", "function" or anything else."""

TOOL_ROLES: Final = frozenset({"tool", "function"})
ASSISTANT_ROLES: Final = frozenset({"assistant", "model"})
CONTROL: Final = "control"


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call of a tool (`input`) or its answer (`output`), both as JSON text."""

    id: str
    name: str
    input: str = ""
    output: str = ""


@dataclass(frozen=True, slots=True)
class Media:
    """An image, a sound or a file shown to the model: its bytes, or where they are."""

    mime_type: str
    data: bytes = b""
    uri: str = ""
    name: str = ""


@dataclass(frozen=True, slots=True)
class Reasoning:
    """What a model thought: text for people, and data that only its own family understands."""

    text: str = ""
    provider: str = ""
    model: str = ""
    opaque: str = ""  # as the provider gave it, sent back byte for byte or not at all


@dataclass(frozen=True, slots=True)
class Message:
    """One entry of a conversation; the content of a tool message is its outputs, as JSON."""

    role: str
    content: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    author: str = ""
    media: tuple[Media, ...] = ()
    reasoning: tuple[Reasoning, ...] = ()

    @property
    def is_tool(self) -> bool:
        """Whether this message answers tool calls."""
        return self.role in TOOL_ROLES

    @property
    def is_assistant(self) -> bool:
        """Whether an agent said this."""
        return self.role in ASSISTANT_ROLES
