"""The server side of Gemini's streamGenerateContent."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Final

from lango.core.messages.streams import FinishReason
from lango.core.values import JsonObject
from lango.testing.wires.gemini_rules import check
from lango.testing.wires.http import HttpRequest
from lango.testing.wires.rules import Problems
from lango.testing.wires.script import Call, Frame, Refusal, ScriptedAnswer, Trouble

_REASONS: Final[dict[FinishReason, str]] = {
    "stop": "STOP",
    "tool_calls": "STOP",
    "length": "MAX_TOKENS",
    "content_filter": "SAFETY",
    "other": "OTHER",
}
_REFUSALS: Final[dict[Trouble, tuple[int, str, str]]] = {
    "rate_limited": (429, "RESOURCE_EXHAUSTED", "Resource has been exhausted."),
    "failing": (500, "INTERNAL", "An internal error has occurred."),
    "overloaded": (503, "UNAVAILABLE", "The model is overloaded."),
    "too_long": (
        400,
        "INVALID_ARGUMENT",
        "The input token count (1048577) exceeds the maximum number of tokens allowed (1048576).",
    ),
    "no_key": (400, "INVALID_ARGUMENT", "API key not valid. Please pass a valid API key."),
    "no_model": (404, "NOT_FOUND", "models/gemini-0 is not found."),
    "bad_request": (400, "INVALID_ARGUMENT", "Request contains an invalid argument."),
}
_RAW: Final = "@arguments@"


class GeminiWire:
    """streamGenerateContent of the Developer API."""

    name = "gemini"
    base = ""
    path = r"/v1beta/models/[^/:]+:streamGenerateContent"
    request_id_header = "x-request-id"

    def frames(self, answer: ScriptedAnswer, model: str) -> list[Frame]:
        """An answer as the vendor streams it."""
        return list(_frames(answer, model))

    def empty(self, model: str) -> bytes:
        """An empty chunk."""
        return _data({"candidates": [], "modelVersion": model, "responseId": "resp-1"})

    def error_frame(self) -> bytes:
        """An error within an answer."""
        error = {"code": 503, "message": "The model is overloaded.", "status": "UNAVAILABLE"}
        return _data({"error": error})

    def refusal(self, refusal: Refusal, message: str = "") -> tuple[int, bytes]:
        """Status and body."""
        code, status, default = _REFUSALS[refusal.trouble]
        code = refusal.status or code
        error = {"code": code, "message": message or default, "status": status}
        return code, json.dumps({"error": error}).encode()

    def problems(self, request: HttpRequest, body: JsonObject) -> Problems:
        """What Google would refuse in the request."""
        return check(request, body)


def _frames(answer: ScriptedAnswer, model: str) -> Iterator[Frame]:
    for piece in answer.pieces(answer.thoughts):
        yield Frame(_chunk(model, [{"text": piece, "thought": True}]))
    for piece in answer.pieces(answer.text):
        yield Frame(_chunk(model, [{"text": piece}]))
    for number, call in enumerate(answer.calls):
        part = _call(call)
        if answer.signature and number == 0:
            part["thoughtSignature"] = _base64(answer.signature)
        chunk = _chunk(model, [part])
        yield Frame(chunk.replace(b'"%b"' % _RAW.encode(), call.arguments.encode()), False, True)
    parts: list[JsonObject] = [{"text": ""}]
    if answer.signature and not answer.calls:
        parts[0]["thoughtSignature"] = _base64(answer.signature)
    yield Frame(_chunk(model, parts, answer), finish=True)


def _base64(signature: str) -> str:
    return base64.b64encode(signature.encode()).decode()


def _call(call: Call) -> JsonObject:
    function: JsonObject = {"name": call.name, "args": _RAW}
    if call.id is not None:
        function["id"] = call.id
    return {"functionCall": function}


def _chunk(model: str, parts: list[JsonObject], ended: ScriptedAnswer | None = None) -> bytes:
    candidate: JsonObject = {"content": {"parts": parts, "role": "model"}, "index": 0}
    chunk: JsonObject = {"candidates": [candidate], "modelVersion": model, "responseId": "resp-1"}
    if ended is not None:
        usage = ended.usage
        candidate["finishReason"] = _REASONS[ended.finish_reason]
        chunk["usageMetadata"] = {
            "promptTokenCount": usage.input,
            "cachedContentTokenCount": usage.cached,
            "candidatesTokenCount": usage.output - usage.reasoning,
            "thoughtsTokenCount": usage.reasoning,
            "totalTokenCount": usage.input + usage.output,
        }
    return _data(chunk)


def _data(value: JsonObject) -> bytes:
    # Google escapes non-ASCII characters.
    return b"data: " + json.dumps(value).encode() + b"\r\n\r\n"
