"""What Anthropic refuses in a request for Messages."""

from __future__ import annotations

import itertools
import re
from typing import Any, Final

from lango.core.values import JsonObject
from lango.testing.wires.http import HttpRequest
from lango.testing.wires.rules import (
    Problems,
    is_base64,
    is_schema,
    obj,
    objects,
    open_objects,
    text,
)

_FIELDS: Final = frozenset(
    {"model", "max_tokens", "messages", "stream", "system", "tools", "tool_choice", "thinking"}
    | {"temperature", "top_p", "stop_sequences", "output_config", "cache_control"}
)
_ID: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,128}")
_IMAGES: Final = ("image/jpeg", "image/png", "image/gif", "image/webp")
_THOUGHTS: Final = ("thinking", "redacted_thinking")
_MAX_MARKS: Final = 4


def check(request: HttpRequest, body: JsonObject) -> Problems:
    """All faults of a request."""
    problems = Problems()
    problems.need(request.headers.get("x-api-key"), "no key")
    problems.need(request.headers.get("anthropic-version"), "anthropic-version: header is required")
    problems.only(body, _FIELDS, "request")
    problems.need(body.get("model"), "model: missing")
    problems.need(body.get("stream") is True, "stream: not asked for")
    problems.need("max_tokens" in body, "max_tokens: missing")
    problems.between(body, "max_tokens", 1, 1e9)
    problems.between(body, "temperature", 0, 1)
    problems.between(body, "top_p", 0, 1)
    _check_system(problems, body)
    _check_marks(problems, body)
    stops: list[Any] = body.get("stop_sequences") or []
    problems.need(all(text(stop).strip() for stop in stops), "stop_sequences: only whitespace")
    messages = [_in_blocks(message) for message in objects(body.get("messages"))]
    _check_turns(problems, messages)
    _check_tools(problems, body, messages)
    _check_thinking(problems, body, messages)
    form = obj(obj(body.get("output_config")).get("format"))
    if form:
        loose = open_objects(obj(form.get("schema")), all_required=False)
        problems.need(not loose, f"output_config: additionalProperties must be false at {loose}")
    return problems


def _check_system(problems: Problems, body: JsonObject) -> None:
    system: Any = body.get("system", "-")
    blocks = [{"type": "text", "text": system}] if isinstance(system, str) else objects(system)
    kinds = {block.get("type") for block in blocks}
    problems.need(kinds <= {"text"}, f"system: blocks of type {kinds}")
    problems.need(blocks and all(text(b.get("text")).strip() for b in blocks), "system: empty")


def _check_marks(problems: Problems, body: JsonObject) -> None:
    """Check the marks of the prompt cache."""
    blocks = [*objects(body.get("tools")), *objects(body.get("system"))]
    blocks += [b for m in objects(body.get("messages")) for b in objects(m.get("content"))]
    marked = [block for block in (body, *blocks) if "cache_control" in block]
    problems.need(len(marked) <= _MAX_MARKS, f"cache_control: {len(marked)} blocks, 4 at most")
    for block in marked:
        mark = obj(block["cache_control"])
        problems.need(mark.get("type") == "ephemeral", "cache_control: type")
        problems.need(mark.get("ttl", "5m") in ("5m", "1h"), "cache_control: ttl")
        problems.need(block.get("type") not in _THOUGHTS, "cache_control: on a thinking block")


def _in_blocks(message: JsonObject) -> JsonObject:
    """Expand a plain text, the short form of one text block."""
    content: Any = message.get("content")
    if isinstance(content, str):
        return {**message, "content": [{"type": "text", "text": content}]}
    return message


def _check_turns(problems: Problems, messages: list[JsonObject]) -> None:
    problems.need(messages, "messages: at least one message is required")
    if not messages:
        return
    roles = [text(message.get("role")) for message in messages]
    problems.need(set(roles) <= {"user", "assistant"}, f"messages: roles {set(roles)}")
    problems.need(roles[0] == "user", "messages: first message must use the user role")
    problems.need(roles[-1] == "user", "messages: must end with a user message")
    pairs = itertools.pairwise(roles)
    problems.need(all(a != b for a, b in pairs), "messages: roles must alternate")
    ids: list[str] = []
    waiting: list[str] = []
    for number, message in enumerate(messages):
        path = f"messages.{number}"
        blocks = objects(message.get("content"))
        problems.need(blocks, f"{path}: content is empty")
        for block in blocks:
            _check_block(problems, block, roles[number], path)
        _check_results(problems, blocks, waiting, path)
        waiting = [text(b.get("id")) for b in blocks if b.get("type") == "tool_use"]
        ids += waiting
    problems.need(not waiting, f"tool_use ids without tool_result: {waiting}")
    problems.unique(ids, "tool_use ids must be unique")


def _check_results(
    problems: Problems, blocks: list[JsonObject], waiting: list[str], path: str
) -> None:
    """Require the results of exactly the preceding calls, before any other block."""
    kinds = [block.get("type") for block in blocks]
    answered = [text(b.get("tool_use_id")) for b in blocks if b.get("type") == "tool_result"]
    problems.need(sorted(answered) == sorted(waiting), f"{path}: {answered} answer {waiting}")
    first = kinds[: len(answered)]
    problems.need(first == ["tool_result"] * len(answered), f"{path}: tool_result must come first")


def _check_block(problems: Problems, block: JsonObject, role: str, path: str) -> None:
    kind = block.get("type")
    if kind == "text":
        problems.need(text(block.get("text")).strip(), f"{path}: text must contain non-whitespace")
    elif kind == "tool_use":
        problems.need(role == "assistant", f"{path}: tool_use in a {role} message")
        problems.need(
            _ID.fullmatch(text(block.get("id"))), f"{path}: tool_use.id {block.get('id')}"
        )
        problems.need(_NAME.fullmatch(text(block.get("name"))), f"{path}: tool_use.name")
        problems.need(isinstance(block.get("input"), dict), f"{path}: tool_use.input is no object")
    elif kind == "tool_result":
        problems.need(role == "user", f"{path}: tool_result in an {role} message")
        for inner in objects(block.get("content")):
            _check_block(problems, inner, role, path)
    elif kind in ("image", "document"):
        _check_source(problems, obj(block.get("source")), text(kind), path)
        problems.need(role == "user", f"{path}: {kind} in an {role} message")
    elif kind in _THOUGHTS:
        signed = block.get("signature") if kind == "thinking" else block.get("data")
        problems.need(signed and role == "assistant", f"{path}: {kind} without its signature")
    else:
        problems.append(f"{path}: block of type {kind}")


def _check_source(problems: Problems, source: JsonObject, kind: str, path: str) -> None:
    if source.get("type") == "url":
        problems.need(text(source.get("url")).startswith("http"), f"{path}: {kind} address")
        return
    allowed = _IMAGES if kind == "image" else ("application/pdf",)
    problems.need(source.get("media_type") in allowed, f"{path}: {source.get('media_type')}")
    problems.need(is_base64(text(source.get("data"))), f"{path}: {kind} is not base64")


def _check_tools(problems: Problems, body: JsonObject, messages: list[JsonObject]) -> None:
    tools = objects(body.get("tools"))
    names = [text(tool.get("name")) for tool in tools]
    problems.need("tools" not in body or tools, "tools: empty")
    problems.unique(names, "tools")
    for name, tool in zip(names, tools, strict=True):
        problems.need(_NAME.fullmatch(name), f"tools: bad name {name!r}")
        problems.need(is_schema(tool.get("input_schema")), f"tools: {name} has no object schema")
    blocks = [block for message in messages for block in objects(message.get("content"))]
    needs_tools = any(block.get("type") in ("tool_use", "tool_result") for block in blocks)
    problems.need(tools or not needs_tools, "tools: needed, for the messages hold tool_use")
    choice = obj(body.get("tool_choice"))
    problems.need(not choice or tools, "tool_choice: without tools")
    problems.need(choice.get("type") in (None, "auto", "any", "tool", "none"), "tool_choice: type")
    problems.need(choice.get("type") != "tool" or choice.get("name") in names, "tool_choice: name")


def _check_thinking(problems: Problems, body: JsonObject, messages: list[JsonObject]) -> None:
    thinking = obj(body.get("thinking"))
    if thinking.get("type") not in ("enabled", "adaptive"):
        return
    forced = obj(body.get("tool_choice")).get("type") in ("any", "tool")
    problems.need(not forced, "thinking: may not be enabled when tool_choice forces tool use")
    problems.need(body.get("temperature", 1) == 1, "temperature: must be 1 with thinking")
    if thinking["type"] == "adaptive":
        return
    budget: Any = thinking.get("budget_tokens")
    fits = isinstance(budget, int) and 1024 <= budget < body.get("max_tokens", 0)
    problems.need(fits, "max_tokens: must be greater than thinking.budget_tokens")
    for message in reversed(messages):
        kinds = [block.get("type") for block in objects(message.get("content"))]
        if message.get("role") == "assistant":
            problems.need(kinds[0] in _THOUGHTS, "messages: expected a thinking block first")
        elif "tool_result" not in kinds:
            break
