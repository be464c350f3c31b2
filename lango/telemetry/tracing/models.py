"""The span of a model call, by the GenAI conventions.

Inside an agent's step ADK has begun a span for it, named `generate_content` and with Gemini as its
provider whatever the model is. That span is made ours: the conventions want one span for a call
with all its retries. Elsewhere the span is our own.
"""

from __future__ import annotations

from typing import Final

from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import Span, SpanKind
from opentelemetry.util.types import AttributeValue

from lango.core.context.model_calls import ModelAttempt
from lango.core.messages.streams import Usage
from lango.telemetry.tracing import names
from lango.telemetry.tracing.failures import fail

ADK_SCOPE: Final = "gcp.vertex.agent"
"""The instrumentation scope of ADK's spans."""
_ADK_OPERATION: Final = "generate_content"


class ModelSpan:
    """The span of one model call: its attempts at one model after another, and its answer."""

    def __init__(self, tracer: trace.Tracer) -> None:
        current = trace.get_current_span()
        self._is_ours = not _is_model_span_of_adk(current)
        self._span = current
        if self._is_ours:
            self._span = tracer.start_span(names.CHAT, kind=SpanKind.CLIENT)
        self._attempts = 0

    def begins(self, attempt: ModelAttempt) -> None:
        """Say which provider and model are asked, from now on."""
        self._attempts += 1
        provider = provider_name(attempt.provider)
        self._span.update_name(f"{names.CHAT} {attempt.model}".strip())
        self._span.set_attributes(
            {
                names.OPERATION: names.CHAT,
                names.PROVIDER: provider,
                names.SYSTEM: provider,
                names.REQUEST_MODEL: attempt.model,
            }
        )

    def ended(self, attempt: ModelAttempt) -> None:
        """Add the outcome of an attempt; a retry may follow one that failed."""
        if attempt.outcome == "failed":
            attributes: dict[str, AttributeValue] = {
                names.ERROR_TYPE: attempt.error,
                names.PROVIDER: provider_name(attempt.provider),
                names.REQUEST_MODEL: attempt.model,
            }
            self._span.add_event(names.ATTEMPT_FAILED, attributes)
        elif attempt.usage is not None:
            self._span.set_attributes(_usage(attempt.usage))

    def answered(self, model: str, finish_reason: str) -> None:
        """Add the model that the provider names, and why it stopped."""
        if model:
            self._span.set_attribute(names.RESPONSE_MODEL, model)
        self._span.set_attribute(names.FINISH_REASONS, (finish_reason,))

    def failed(self, error: BaseException) -> None:
        """Mark the call as failed."""
        fail(self._span, type(error).__name__)

    def end(self) -> None:
        """End the span, unless it is ADK's, which ADK ends."""
        if self._attempts > 1:
            self._span.set_attribute(names.CALL_ATTEMPTS, self._attempts)
        if self._is_ours:
            self._span.end()


def provider_name(provider: str) -> str:
    """The conventions' name of a provider."""
    return names.PROVIDERS.get(provider, provider)


def _usage(usage: Usage) -> dict[str, AttributeValue]:
    counted: dict[str, AttributeValue] = {
        names.INPUT_TOKENS: usage.input,
        names.OUTPUT_TOKENS: usage.output,
    }
    return counted | {names.CACHED_TOKENS: usage.cached} if usage.cached else counted


def _is_model_span_of_adk(span: Span) -> bool:
    if not isinstance(span, ReadableSpan) or span.instrumentation_scope is None:
        return False
    operation = (span.attributes or {}).get(names.OPERATION)
    return span.instrumentation_scope.name == ADK_SCOPE and operation == _ADK_OPERATION
