"""Converts ADK's request configuration to a vendor-neutral one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from google.genai import types

from lango.adk.models.schemas import json_schema, parameters_of
from lango.core.messages.messages import Message
from lango.core.values import JsonObject
from lango.errors import BadRequestError
from lango.providers.base import ModelRequest, ToolChoice, ToolSpec

_CHOICES: Final[dict[types.FunctionCallingConfigMode, ToolChoice]] = {
    types.FunctionCallingConfigMode.ANY: "required",
    types.FunctionCallingConfigMode.NONE: "none",
}
ANY_OBJECT: Final[JsonObject] = {"type": "object"}


@dataclass(frozen=True, slots=True)
class RequestConfig:
    """All of a request but its messages."""

    config: types.GenerateContentConfig
    tools: tuple[ToolSpec, ...]
    extra: Mapping[str, Any]

    def request(
        self, model: str, messages: Sequence[Message], *, cut: bool = False
    ) -> ModelRequest:
        """The request with these messages; `cut` means that older ones were left out."""
        config = self.config
        choice, allowed = _tool_choice(config)
        return ModelRequest(
            model=model,
            messages=messages,
            tools=self.tools,
            tool_choice=choice,
            allowed_tools=allowed,
            output_schema=_output_schema(config),
            temperature=config.temperature,
            top_p=config.top_p,
            max_tokens=config.max_output_tokens,
            stop=tuple(config.stop_sequences or ()),
            thinking=_thinking(config),
            extra=self.extra,
            cut=cut,
        )


def options_of(
    config: types.GenerateContentConfig | None, extra: Mapping[str, Any] | None = None
) -> RequestConfig:
    """The options in a configuration; BadRequestError for a tool that is not a function."""
    config = config or types.GenerateContentConfig()
    return RequestConfig(config, tuple(_tools(config)), extra or {})


def _tools(config: types.GenerateContentConfig) -> Iterator[ToolSpec]:
    for tool in config.tools or ():  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
        if not isinstance(tool, types.Tool):
            raise BadRequestError(f"A tool must be declared to the model by its agent: {tool!r}")
        other_tools = [n for n, v in tool.__dict__.items() if v and n != "function_declarations"]
        if other_tools:
            raise BadRequestError(f"Only Gemini's own API has the tool {', '.join(other_tools)}.")
        for declaration in tool.function_declarations or ():
            yield ToolSpec(
                declaration.name or "", declaration.description or "", parameters_of(declaration)
            )


def _tool_choice(config: types.GenerateContentConfig) -> tuple[ToolChoice, tuple[str, ...]]:
    calling = config.tool_config and config.tool_config.function_calling_config
    if not calling or calling.mode is None:
        return "auto", ()
    choice = _CHOICES.get(calling.mode, "auto")
    return choice, tuple(calling.allowed_function_names or ()) if choice == "required" else ()


def _output_schema(config: types.GenerateContentConfig) -> JsonObject | None:
    schema: Any = config.response_json_schema
    if schema is None:
        schema = config.response_schema
    if schema is not None:
        return json_schema(schema)
    return ANY_OBJECT if config.response_mime_type == "application/json" else None


def _thinking(config: types.GenerateContentConfig) -> bool | None:
    thinking = config.thinking_config
    if thinking is None:
        return None
    if thinking.thinking_budget == 0:
        return False
    options = (thinking.include_thoughts, thinking.thinking_budget, thinking.thinking_level)
    return True if any(options) else None
