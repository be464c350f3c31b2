"""The strict validators: what the vendors refuse is refused, and what they take is taken."""

import copy
from collections.abc import Callable
from typing import Any

import pytest

from lango.testing.wires import WIRES, WireServer
from lango.testing.wires.http import HttpRequest
from lango.testing.wires.rules import Problems
from tests.providers.conversation import SCHEMA, ask, say
from tests.providers.test_switching import MODELS

Spoil = Callable[[Any], object]


async def good(wire: str) -> tuple[HttpRequest, dict[str, Any]]:
    """A request of ours, with all that a request can hold."""
    async with WireServer(wire) as server:
        model_request = ask(MODELS[wire], output_schema=SCHEMA, temperature=0.0, stop=("END",))
        await say(server.provider(), model_request)
        (received,) = server.requests
    return HttpRequest("POST", received.path, received.headers, b""), received.body


@pytest.mark.parametrize("wire", list(WIRES))
async def test_a_good_request_is_taken(wire: str) -> None:
    request, body = await good(wire)
    assert WIRES[wire].problems(request, body) == []
    without_key = HttpRequest("POST", request.target, {"anthropic-version": "1"}, b"")
    assert WIRES[wire].problems(without_key, body) == ["no key"]


async def test_gemini_takes_the_fields_that_agents_of_adk_set() -> None:
    request, body = await good("gemini")
    body["safetySettings"] = [{"category": "HARM_CATEGORY_HARASSMENT", "threshold": "OFF"}]
    body["cachedContent"] = "cachedContents/1"
    body["contents"][0]["parts"].append({"text": ""})
    assert WIRES["gemini"].problems(request, body) == []


async def spoilt(wire: str, spoil: Spoil) -> Problems:
    request, body = await good(wire)
    body = copy.deepcopy(body)
    spoil(body)
    return WIRES[wire].problems(request, body)


def drop(*path: str | int) -> Spoil:
    def spoil(body: Any) -> None:
        for step in path[:-1]:
            body = body[step]
        del body[path[-1]]

    return spoil


def put(value: Any, *path: str | int) -> Spoil:
    def spoil(body: Any) -> None:
        for step in path[:-1]:
            body = body[step]
        body[path[-1]] = value

    return spoil


CHAT: dict[str, Spoil] = {
    "an unpaired call": drop("messages", 3),
    "an orphan result": put("unknown", "messages", 3, "tool_call_id"),
    "a duplicate id": put("call_2", "messages", 2, "tool_calls", 0, "id"),
    "an id too long": put("x" * 41, "messages", 2, "tool_calls", 0, "id"),
    "empty content": put("", "messages", 0, "content"),
    "no parts": put([], "messages", 1, "content"),
    "an assistant that says nothing": put({"role": "assistant"}, "messages", 2),
    "an unknown role": put("model", "messages", 0, "role"),
    "arguments that are no object": put(
        "[]", "messages", 2, "tool_calls", 0, "function", "arguments"
    ),
    "a bad name": put("a b", "messages", 2, "tool_calls", 0, "function", "name"),
    "no messages": put([], "messages"),
    "an unknown field": put(1, "top_k"),
    "a bad image": put("data:image/png;base64,!", "messages", 1, "content", 1, "image_url", "url"),
    "a choice of no tool": put({"type": "function", "function": {"name": "x"}}, "tool_choice"),
    "two tools of one name": put("now", "tools", 0, "function", "name"),
    "a loose strict schema": drop("response_format", "json_schema", "schema", "required"),
    "too hot": put(3, "temperature"),
    "too many stops": put(list("abcde"), "stop"),
}
RESPONSES: dict[str, Spoil] = {
    "an unpaired call": drop("input", 4),
    "an orphan result": put("unknown", "input", 4, "call_id"),
    "a duplicate id": put("call_2", "input", 2, "call_id"),
    "empty content": put([], "input", 0, "content"),
    "an unknown item": put("new", "input", 0, "type"),
    "an assistant's input part": put([{"type": "input_text", "text": "a"}], "input", 1, "content"),
    "a thought that leads nowhere": put(
        {"type": "reasoning", "id": "r", "summary": [], "encrypted_content": "x"}, "input", 5
    ),
    "a thought that was never stored": put(
        {"type": "reasoning", "id": "r", "summary": []}, "input", 1
    ),
    "a stop sequence": put(["END"], "stop"),
    "a tool that would be made strict": drop("tools", 0, "strict"),
    "no input": put([], "input"),
}
ANTHROPIC: dict[str, Spoil] = {
    "an unpaired call": drop("messages", 2, "content", 0),
    "an orphan result": put("unknown", "messages", 2, "content", 0, "tool_use_id"),
    "a duplicate id": put("call_2", "messages", 1, "content", 1, "id"),
    "an illegal id": put("a.b", "messages", 1, "content", 1, "id"),
    "whitespace": put(" ", "messages", 0, "content", 1, "text"),
    "the wrong side first": drop("messages", 0),
    "one side twice": put("user", "messages", 1, "role"),
    "no limit": drop("max_tokens"),
    "a system role": put("system", "messages", 0, "role"),
    "text before results": lambda body: body["messages"][2]["content"].insert(
        0, {"type": "text", "text": "Here."}
    ),
    "thoughts without a signature": lambda body: body["messages"][1]["content"].insert(
        0, {"type": "thinking", "thinking": "Hm."}
    ),
    "too hot": put(1.5, "temperature"),
    "an empty system text": put("", "system"),
    "an open schema": put({"type": "object"}, "output_config", "format", "schema"),
    "no tools for calls": drop("tools"),
    "thinking when cold": put({"type": "enabled", "budget_tokens": 2000}, "thinking"),
}
GEMINI: dict[str, Spoil] = {
    "an unpaired call": drop("contents", 2, "parts", 0),
    "an orphan result": put("unknown", "contents", 2, "parts", 0, "functionResponse", "name"),
    "no parts": put([], "contents", 0, "parts"),
    "an empty text": put([{"text": ""}], "contents", 0, "parts"),
    "the wrong side first": drop("contents", 0),
    "a role of others": put("assistant", "contents", 1, "role"),
    "a call without a signature": drop("contents", 1, "parts", 1, "thoughtSignature"),
    "no contents": put([], "contents"),
    "a part with two things": put("and text", "contents", 1, "parts", 1, "text"),
    "arguments that are no object": put([], "contents", 1, "parts", 1, "functionCall", "args"),
    "a schema without its type": drop("generationConfig", "responseMimeType"),
    "too many stops": put(list("abcdef"), "generationConfig", "stopSequences"),
}
CASES = [
    (wire, name, spoil)
    for wire, cases in zip(WIRES, (CHAT, RESPONSES, ANTHROPIC, GEMINI), strict=True)
    for name, spoil in cases.items()
]


@pytest.mark.parametrize(
    ("wire", "spoil"), [(w, s) for w, _, s in CASES], ids=[f"{w}-{n}" for w, n, _ in CASES]
)
async def test_a_bad_request_is_refused(wire: str, spoil: Spoil) -> None:
    assert await spoilt(wire, spoil) != []
