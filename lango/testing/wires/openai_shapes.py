"""OpenAI's error responses, shared by both of its APIs."""

from __future__ import annotations

import json
from typing import Final

from lango.testing.wires.script import Refusal, Trouble

_REFUSALS: Final[dict[Trouble, tuple[int, str, str | None, str]]] = {
    "rate_limited": (429, "requests", "rate_limit_exceeded", "Rate limit reached."),
    "failing": (500, "server_error", None, "The server had an error."),
    "overloaded": (503, "server_error", None, "The engine is currently overloaded."),
    "too_long": (
        400,
        "invalid_request_error",
        "context_length_exceeded",
        "This model's maximum context length is 8192 tokens.",
    ),
    "no_key": (401, "invalid_request_error", "invalid_api_key", "Incorrect API key provided."),
    "no_model": (404, "invalid_request_error", "model_not_found", "The model does not exist."),
    "bad_request": (400, "invalid_request_error", None, "Invalid request."),
}


class OpenAIRefusals:
    """The errors sent instead of an answer."""

    request_id_header = "x-request-id"

    def refusal(self, refusal: Refusal, message: str = "") -> tuple[int, bytes]:
        """Status and body."""
        status, kind, code, said = _REFUSALS[refusal.trouble]
        error = {"message": message or said, "type": kind, "param": None, "code": code}
        return refusal.status or status, json.dumps({"error": error}).encode()
