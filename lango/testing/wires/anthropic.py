"""The server side of Anthropic's Messages API."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Final

from lango.core.messages.streams import FinishReason
from lango.core.values import JsonObject
from lango.testing.wires.anthropic_rules import check
from lango.testing.wires.http import HttpRequest
from lango.testing.wires.rules import Problems
from lango.testing.wires.script import Call, Frame, Refusal, ScriptedAnswer, Trouble

_STOPS: Final[dict[FinishReason, str]] = {
    "stop": "end_turn",
    "tool_calls": "tool_use",
    "length": "max_tokens",
    "content_filter": "refusal",
    "other": "pause_turn",
}
_REFUSALS: Final[dict[Trouble, tuple[int, str, str]]] = {
    "rate_limited": (429, "rate_limit_error", "This request would exceed your rate limit."),
    "failing": (500, "api_error", "Internal server error"),
    "overloaded": (529, "overloaded_error", "Overloaded"),
    "too_long": (
        400,
        "invalid_request_error",
        "prompt is too long: 208310 tokens > 200000 maximum",
    ),
    "no_key": (401, "authentication_error", "invalid x-api-key"),
    "no_model": (404, "not_found_error", "model: claude-0"),
    "bad_request": (400, "invalid_request_error", "messages: at least one message is required"),
}
_FINISH: Final = ("message_delta", "message_stop")

Step = tuple[str, JsonObject]


class AnthropicWire:
    """The Messages API."""

    name = "anthropic"
    base = ""
    path = r"/v1/messages"
    request_id_header = "request-id"

    def frames(self, answer: ScriptedAnswer, model: str) -> list[Frame]:
        """An answer as the vendor streams it."""
        return [_frame(*step) for step in _steps(answer, model)]

    def empty(self, model: str) -> bytes:
        """An empty event."""
        del model
        return _frame("ping", {}).data

    def error_frame(self) -> bytes:
        """An error within an answer."""
        return _frame(
            "error", {"error": {"type": "overloaded_error", "message": "Overloaded"}}
        ).data

    def refusal(self, refusal: Refusal, message: str = "") -> tuple[int, bytes]:
        """Status and body."""
        status, kind, default = _REFUSALS[refusal.trouble]
        error = {"type": kind, "message": message or default}
        return refusal.status or status, json.dumps({"type": "error", "error": error}).encode()

    def problems(self, request: HttpRequest, body: JsonObject) -> Problems:
        """What Anthropic would refuse in the request."""
        return check(request, body)


def _steps(answer: ScriptedAnswer, model: str) -> Iterator[Step]:
    usage = answer.usage
    first_usage: JsonObject = {
        "input_tokens": usage.input - usage.cached - usage.written,
        "cache_read_input_tokens": usage.cached,
        "cache_creation_input_tokens": usage.written,
        "output_tokens": 1,
    }
    message: JsonObject = {"id": "msg_1", "type": "message", "role": "assistant", "content": []}
    message |= {"model": model, "stop_reason": None, "stop_sequence": None, "usage": first_usage}
    yield "message_start", {"message": message}
    yield "ping", {}
    index = 0
    if answer.thoughts or answer.signature:
        yield from _thinking(answer)
        index += 1
    if answer.text:
        block: JsonObject = {"type": "text", "text": ""}
        deltas = [{"type": "text_delta", "text": piece} for piece in answer.pieces(answer.text)]
        yield from _block(index, block, deltas)
        index += 1
    for number, call in enumerate(answer.calls, start=index):
        yield from _call(answer, call, number)
    delta = {"stop_reason": _STOPS[answer.finish_reason], "stop_sequence": None}
    last_usage: JsonObject = {"output_tokens": usage.output}
    if usage.reasoning:
        last_usage["output_tokens_details"] = {"thinking_tokens": usage.reasoning}
    yield "message_delta", {"delta": delta, "usage": last_usage}
    yield "message_stop", {}


def _thinking(answer: ScriptedAnswer) -> Iterator[Step]:
    block: JsonObject = {"type": "thinking", "thinking": "", "signature": ""}
    pieces = answer.pieces(answer.thoughts)
    deltas: list[JsonObject] = [{"type": "thinking_delta", "thinking": piece} for piece in pieces]
    if answer.signature:
        deltas.append({"type": "signature_delta", "signature": answer.signature})
    yield from _block(0, block, deltas)


def _call(answer: ScriptedAnswer, call: Call, index: int) -> Iterator[Step]:
    block: JsonObject = {"type": "tool_use", "name": call.name, "input": {}}
    if call.id is not None:
        block["id"] = call.id
    pieces = ["", *answer.pieces(call.arguments)]
    deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]
    yield from _block(index, block, deltas)


def _block(index: int, block: JsonObject, deltas: list[JsonObject]) -> Iterator[Step]:
    yield "content_block_start", {"index": index, "content_block": block}
    for delta in deltas:
        yield "content_block_delta", {"index": index, "delta": delta}
    yield "content_block_stop", {"index": index}


def _frame(kind: str, fields: JsonObject) -> Frame:
    data = json.dumps({"type": kind, **fields}, ensure_ascii=False).encode("utf-8", "replace")
    opens = kind == "content_block_start" and fields["content_block"]["type"] == "tool_use"
    frame = b"event: %b\ndata: %b\n\n" % (kind.encode(), data)
    return Frame(frame, finish=kind in _FINISH, opens_call=opens)
