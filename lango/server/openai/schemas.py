"""Schemas of /openai/v1: OpenAI's fields, as far as an agent supports them."""

from __future__ import annotations

import re
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from lango.core.messages.streams import Usage
from lango.core.values import JsonObject

COMPLETION: Final = "chat.completion"
CHUNK: Final = "chat.completion.chunk"
_NAME: Final = re.compile(r"[a-z_]{1,40}")
_MAX_NAMED: Final = 20


class RequestPart(BaseModel):
    """A part of a request. Unlisted fields are ignored: the agent has its own settings."""

    model_config = ConfigDict(extra="ignore")


class ContentPart(RequestPart):
    """A part of a message."""

    type: str
    text: str | None = None
    refusal: str | None = None


class ChatMessage(RequestPart):
    """One message of a conversation."""

    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: str | list[ContentPart] | None = None


class StreamOptions(RequestPart):
    """How to stream."""

    include_usage: bool | None = None


class ChatRequest(RequestPart):
    """A conversation so far, with new messages at its end."""

    model_config = ConfigDict(extra="allow")  # to report the ignored fields

    model: str = Field(description="The name of an app.")
    messages: list[ChatMessage] = Field(min_length=1)
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: int | None = None
    tool_choice: Any = None
    function_call: Any = None
    response_format: dict[str, Any] | None = None
    modalities: list[str] | None = None
    logprobs: bool | None = None

    @property
    def ignored(self) -> tuple[str, ...]:
        """The names of sent settings that have no effect: the agent has its own."""
        names = sorted(
            name for name, value in (self.model_extra or {}).items() if value is not None
        )
        return tuple(name for name in names if _NAME.fullmatch(name))[:_MAX_NAMED]

    @property
    def tells_usage_apart(self) -> bool:
        """Whether the client asks for a separate usage chunk."""
        return bool(self.stream_options and self.stream_options.include_usage)


class ChatChoice(BaseModel):
    """The answer."""

    index: int = 0
    message: dict[str, Any]
    finish_reason: str = "stop"


class ChatCompletion(BaseModel):
    """A complete answer."""

    id: str
    object: str = COMPLETION
    created: int
    model: str
    choices: list[ChatChoice]
    usage: dict[str, Any]


class ModelInfo(BaseModel):
    """An agent, as a model."""

    id: str
    object: str = "model"
    created: int = 0
    owned_by: str = "lango"


class ModelList(BaseModel):
    """The agents served here, as models."""

    object: str = "list"
    data: list[ModelInfo]


class ErrorBody(BaseModel):
    """What went wrong."""

    message: str
    type: str
    param: str | None = None
    code: str | None = None
    error_id: str | None = Field(
        default=None, description="What the server's log knows it by; only where there is one."
    )
    trace_id: str | None = Field(default=None, description="Its trace; only while traces are on.")


class ErrorAnswer(BaseModel):
    """An error in OpenAI's form."""

    error: ErrorBody


def usage_of(data: JsonObject | None) -> JsonObject:
    """The tokens of a turn in OpenAI's fields."""
    usage = Usage(**(data or {}))
    return {
        "prompt_tokens": usage.input,
        "completion_tokens": usage.output,
        "total_tokens": usage.input + usage.output,
        "prompt_tokens_details": {"cached_tokens": usage.cached},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning},
    }
