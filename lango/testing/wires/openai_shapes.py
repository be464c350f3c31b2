"""What OpenAI's two APIs share: error responses, and rules of a request."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Final

from lango.core.values import JsonObject
from lango.testing.wires.http import HttpRequest
from lango.testing.wires.rules import Problems
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
        status, kind, code, default = _REFUSALS[refusal.trouble]
        error = {"message": message or default, "type": kind, "param": None, "code": code}
        return refusal.status or status, json.dumps({"error": error}).encode()


def common_problems(request: HttpRequest, body: JsonObject, fields: Collection[str]) -> Problems:
    """What both of OpenAI's APIs would refuse in a request."""
    problems = Problems()
    problems.need(request.headers.get("authorization", "").startswith("Bearer "), "no key")
    problems.only(body, fields, "request")
    problems.need(body.get("model"), "model: missing")
    problems.need(body.get("stream") is True, "stream: not asked for")
    problems.between(body, "temperature", 0, 2)
    problems.between(body, "top_p", 0, 1)
    return problems
