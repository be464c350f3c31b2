"""The responses that ADK's telemetry collects during one model call."""

from __future__ import annotations

from typing import Any, Final

from google.adk.models.llm_response import LlmResponse
from google.adk.telemetry import _instrumentation

_SCOPE: Final[Any] = _instrumentation.InferenceScope
# google-adk 2.12 has no such method: there the responses stay until the call ends.
_record: Final[Any] = getattr(_SCOPE, "record_llm_response", None)


def forget_partial_responses() -> None:
    """Patch ADK's telemetry (idempotent): a long stream's partial responses do not stay in memory.

    Telemetry reads what ended the call, and the newest usage that was reported.
    """
    if _record is not None:
        _SCOPE.record_llm_response = _record_and_forget


def _record_and_forget(scope: Any, invocation_context: Any, response: LlmResponse) -> None:
    collected: list[LlmResponse] = scope.llm_responses
    newest = next((answer for answer in reversed(collected) if answer.usage_metadata), None)
    collected[:] = [answer for answer in collected if not answer.partial or answer is newest]
    _record(scope, invocation_context, response)
