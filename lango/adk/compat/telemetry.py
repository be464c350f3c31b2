"""The responses that ADK's telemetry collects during one model call."""

from __future__ import annotations

from google.adk.models.llm_response import LlmResponse
from google.adk.telemetry._instrumentation import inference_scope


def forget_response(response: LlmResponse) -> None:
    """Remove the newest collected response, if it is this one."""
    scope = inference_scope()
    if scope is not None and scope.llm_responses and scope.llm_responses[-1] is response:
        scope.llm_responses.pop()
