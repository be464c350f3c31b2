"""Converts a provider's stream to ADK's responses: partial ones, then one with everything."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Final, cast

from google.adk.models.llm_response import LlmResponse
from google.genai import types

from lango.adk.models.reasoning import thought_part
from lango.adk.sessions.fast_model import build, fast_model
from lango.core.ids import MAX_ID_LENGTH, as_id, new_id
from lango.core.messages.messages import Reasoning, ToolCall
from lango.core.messages.streams import (
    Done,
    FinishReason,
    ReasoningDone,
    StreamEvent,
    TextDelta,
    ThoughtDelta,
    ToolCallDone,
    Usage,
)
from lango.core.values import json_value
from lango.errors import BadStreamError, ModelError

STRIPPED_PREFIX: Final = "adk-"
"""ADK takes ids with this prefix for its own, and strips them from requests."""

FINISH_REASONS: Final[dict[FinishReason, types.FinishReason]] = {
    "stop": types.FinishReason.STOP,
    "tool_calls": types.FinishReason.STOP,
    "length": types.FinishReason.MAX_TOKENS,
    "content_filter": types.FinishReason.SAFETY,
    "other": types.FinishReason.OTHER,
}


@dataclass(slots=True)
class ReceivedAnswer:
    """The received part of one answer. `taken` are the ids of earlier calls."""

    provider: str
    model: str
    used_ids: set[str] = field(default_factory=set[str])
    done: Done | None = None
    _texts: list[str] = field(default_factory=list[str])
    _thoughts: list[str] = field(default_factory=list[str])
    _reasoning: list[Reasoning] = field(default_factory=list[Reasoning])
    _calls: list[types.Part] = field(default_factory=list[types.Part])

    @property
    def text(self) -> str:
        """The text so far."""
        return "".join(self._texts)

    @property
    def begun(self) -> bool:
        """Whether any of it has arrived that a streaming consumer would see."""
        return bool(self._texts or self._thoughts or self._reasoning or self._calls)

    def take(self, event: StreamEvent) -> None:
        """Process one event; raises the error of a failed answer."""
        if isinstance(event, TextDelta):
            self._texts.append(event.text)
        elif isinstance(event, ThoughtDelta):
            self._thoughts.append(event.text)
        elif isinstance(event, ToolCallDone):
            self._calls.append(self._call_part(event.call))
        elif isinstance(event, ReasoningDone):
            self._add_reasoning(event.reasoning)
        elif isinstance(event, Done):
            self.done = event
        else:
            raise event.error

    def of(self, provider: str, model: str) -> None:
        """Set the provider and model that answered, which may be a fallback."""
        self.provider, self.model = provider, model

    def explain(self, error: Exception) -> None:
        """Add provider, model and partial text to an error that ended the answer."""
        if isinstance(error, ModelError):
            error.provider = error.provider or self.provider
            error.model = error.model or self.model
            error.partial_text = error.partial_text or self.text

    def broken(self, reason: str) -> BadStreamError:
        """The error for an invalid stream."""
        return BadStreamError(
            reason, provider=self.provider, model=self.model, partial_text=self.text
        )

    def final(self) -> LlmResponse:
        """The whole answer: thoughts, text, calls. Raises BadStreamError without an end mark."""
        if self.done is None:
            raise self.broken("The answer ended without its end mark.")
        self._flush_thoughts()
        text = self.text
        parts = [thought_part(self._signed(reasoning)) for reasoning in self._reasoning]
        parts += [build(types.Part, text=text)] if text else []
        parts += self._calls
        reason = FINISH_REASONS[self.done.finish_reason]
        silent = not parts and reason is not types.FinishReason.STOP  # ADK itself marks STOP
        return LlmResponse(
            content=types.Content(role="model", parts=parts),
            partial=False,
            turn_complete=True,
            finish_reason=reason,
            usage_metadata=usage_metadata(self.done.usage),
            model_version=self.done.model or self.model,
            error_code=reason.value if silent else None,
            error_message="The model stopped without any text." if silent else None,
        )

    def _add_reasoning(self, reasoning: Reasoning) -> None:
        """Add a finished piece; if it has no text, earlier thoughts stay a separate piece."""
        if reasoning.text:
            self._thoughts.clear()
        else:
            self._flush_thoughts()
        self._reasoning.append(reasoning)

    def _signed(self, reasoning: Reasoning) -> Reasoning:
        """The reasoning with its provider and model, where they are missing."""
        return replace(
            reasoning,
            provider=reasoning.provider or self.provider,
            model=reasoning.model or self.model,
        )

    def _flush_thoughts(self) -> None:
        text = "".join(self._thoughts)
        self._thoughts.clear()
        if text:
            self._reasoning.append(Reasoning(text))

    def _call_part(self, call: ToolCall) -> types.Part:
        if not call.name:
            raise self.broken("The model called a tool without naming it.")
        call_id = usable_id(call.id, self.used_ids)
        self.used_ids.add(call_id)
        arguments = self._arguments(call)
        return types.Part(
            function_call=build(types.FunctionCall, id=call_id, name=call.name, args=arguments)
        )

    def _arguments(self, call: ToolCall) -> dict[str, Any]:
        try:
            arguments: Any = json_value(call.input or "{}")
        except (ValueError, RecursionError) as error:
            raise self.broken(f"The arguments for {call.name} are no JSON.") from error
        if not isinstance(arguments, dict):
            raise self.broken(f"The arguments for {call.name} are not an object.")
        return cast("dict[str, Any]", arguments)


def usable_id(call_id: str, used_ids: Iterable[str] = ()) -> str:
    """The id of a call, or a new one if it is invalid, taken, or has ADK's prefix."""
    fit = call_id and call_id == as_id(call_id, MAX_ID_LENGTH)
    if not fit or call_id.startswith(STRIPPED_PREFIX) or call_id in used_ids:
        return new_id("call")
    return call_id


def usage_metadata(usage: Usage | None) -> types.GenerateContentResponseUsageMetadata | None:
    """Usage as ADK's metadata, which counts thoughts separately from the answer."""
    if usage is None:
        return None
    return types.GenerateContentResponseUsageMetadata(
        prompt_token_count=usage.input,
        cached_content_token_count=usage.cached or None,
        candidates_token_count=max(0, usage.output - usage.reasoning),
        thoughts_token_count=usage.reasoning or None,
        total_token_count=usage.input + usage.output,
    )


# Created for every delta, where little else is done: hence the factories.
_text: Final = fast_model(types.Part).factory("text")
_thought: Final = fast_model(types.Part).factory("text", thought=True)
_content: Final = fast_model(types.Content).factory("parts", role="model")
_response: Final = fast_model(LlmResponse).factory("content", partial=True)


def partial_response(delta: TextDelta | ThoughtDelta) -> LlmResponse:
    """A delta as ADK's partial response."""
    make_part = _text if isinstance(delta, TextDelta) else _thought
    return _response(_content([make_part(delta.text)]))
