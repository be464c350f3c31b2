"""The interface of every model provider: one method."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

from lango.core.messages.messages import Message
from lango.core.messages.streams import StreamEvent, Usage
from lango.core.values import JsonObject

ToolChoice = Literal["auto", "none", "required"]


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool declaration for the model."""

    name: str
    description: str
    parameters: JsonObject  # JSON Schema of an object


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """A vendor-neutral model request. A leading system message is the instruction."""

    model: str
    messages: Sequence[Message]
    tools: Sequence[ToolSpec] = ()
    tool_choice: ToolChoice = "auto"
    allowed_tools: Sequence[str] = ()  # with "required": one of these
    output_schema: JsonObject | None = None
    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    stop: Sequence[str] = ()
    thinking: bool | None = None
    extra: Mapping[str, Any] = field(default_factory=dict[str, Any])  # for the vendor, unchanged
    cut: bool = False  # older messages were left out, so the next request starts elsewhere
    on_usage: Callable[[Usage], None] | None = field(default=None, compare=False, repr=False)
    """Called with the usage so far, by providers that report it before the end of the answer."""


class Provider(Protocol):
    """A provider of models."""

    @property
    def name(self) -> str:
        """The family its reasoning data belongs to: "openai", "anthropic", …"""
        ...

    def stream(self, request: ModelRequest) -> AsyncIterator[StreamEvent]:
        """Stream the answer: deltas, complete tool calls, then exactly one Done or error."""
        ...


@runtime_checkable
class Embedding(Protocol):
    """A provider that also has embedding models."""

    async def embed(self, model: str, texts: Sequence[str]) -> list[list[float]]:
        """The vectors of texts, in their order; raises a ModelError."""
        ...


@runtime_checkable
class Closing(Protocol):
    """A provider with connections."""

    async def close(self) -> None:
        """Close those of the running loop; a later request opens new ones."""
        ...


@runtime_checkable
class Warming(Protocol):
    """A provider whose first request would be slow."""

    async def warm_up(self) -> None:
        """Do now what would delay the first request."""
        ...
