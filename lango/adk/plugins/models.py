"""The model an agent calls, of any class, with its instruction and tool declarations."""

from __future__ import annotations

from typing import Any, Final, cast

from google.adk.agents.callback_context import CallbackContext
from google.adk.models.base_llm import BaseLlm
from google.genai import types

from lango.adk.models.adapter import ModelAdapter
from lango.core.values import json_text, storable_json

_FAMILIES: Final = {"claude": "anthropic", "anthropicllm": "anthropic"}
_ROUTER: Final = "litellm"
"""The class name, in lower case, whose models carry their provider before a slash."""


def model_of(context: CallbackContext) -> BaseLlm | None:
    """The model that the running agent calls."""
    agent = context.get_invocation_context().agent
    model = cast(object, getattr(agent, "canonical_model", None))
    return model if isinstance(model, BaseLlm) else None


def is_surely_asked(context: CallbackContext) -> bool:
    """Whether a model that is not lango's is called next: no callback can answer in its place.

    lango's own models report their calls themselves.
    """
    agent = context.get_invocation_context().agent
    callbacks = cast(object, getattr(agent, "canonical_before_model_callbacks", None))
    return not callbacks and not isinstance(model_of(context), ModelAdapter)


def named(model: BaseLlm | None) -> tuple[str, str]:
    """Provider and model, with the registry's names where it knows them."""
    if model is None:
        return "", ""
    if isinstance(model, ModelAdapter):
        provider, _, name = model.model.partition(":")
        return provider, name
    family = type(model).__name__.lower()
    if family == _ROUTER and "/" in model.model:
        provider, _, name = model.model.partition("/")
        return provider, name
    return _FAMILIES.get(family, family), model.model.rpartition("/")[2]


def instruction_of(config: types.GenerateContentConfig | None) -> object:
    """The system instruction, in any of its types."""
    return cast(object, config.system_instruction) if config else None  # pyright: ignore[reportUnknownMemberType]


def declared_text(config: types.GenerateContentConfig | None) -> str:
    """The tool declarations sent to a model, as one text; empty without tools."""
    tools = cast("list[Any]", (config and config.tools) or [])  # pyright: ignore[reportUnknownMemberType]
    declared = [tool for tool in tools if isinstance(tool, types.Tool)]
    dumped = [tool.model_dump(mode="json", exclude_none=True) for tool in declared]
    return json_text(storable_json(dumped)) if dumped else ""
