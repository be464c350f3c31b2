"""The server side of OpenAI's Chat Completions, and what OpenAI refuses there."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from lango.core.values import JsonObject
from lango.testing.wires.http import HttpRequest
from lango.testing.wires.openai_shapes import OpenAIRefusals, common_problems
from lango.testing.wires.rules import (
    TOOL_NAME,
    Problems,
    is_base64,
    is_json_object,
    is_schema,
    obj,
    objects,
    open_objects,
    text,
)
from lango.testing.wires.script import Call, Frame, ScriptedAnswer

_FIELDS: Final = frozenset(
    {"model", "messages", "stream", "stream_options", "tools", "tool_choice", "response_format"}
    | {"temperature", "top_p", "max_tokens", "max_completion_tokens", "stop", "reasoning_effort"}
)
_ROLES: Final = ("system", "developer", "user", "assistant", "tool")
_MAX_ID: Final = 40
_MAX_STOPS: Final = 4


class OpenAIChatWire(OpenAIRefusals):
    """Chat Completions."""

    name = "openai_chat"
    base = "/v1"
    path = r"/v1/chat/completions"

    def frames(self, answer: ScriptedAnswer, model: str) -> list[Frame]:
        """An answer as the vendor streams it."""
        return [_frame(model, *step) for step in _steps(answer)] + [
            Frame(b"data: [DONE]\n\n", finish=True)
        ]

    def empty(self, model: str) -> bytes:
        """An empty chunk."""
        return _data({**_head(model), "choices": []})

    def error_frame(self) -> bytes:
        """An error within an answer."""
        error = {"message": "The server had an error.", "type": "server_error", "code": None}
        return _data({"error": error})

    def problems(self, request: HttpRequest, body: JsonObject) -> Problems:
        """What OpenAI would refuse in the request."""
        problems = common_problems(request, body, _FIELDS)
        stops: Any = body.get("stop") or []
        problems.need(len(stops) <= _MAX_STOPS, f"stop: more than {_MAX_STOPS}")
        for key in ("max_tokens", "max_completion_tokens"):
            problems.between(body, key, 1, 1e9)
        _check_tools(problems, body)
        _check_format(problems, obj(body.get("response_format")))
        messages = objects(body.get("messages"))
        problems.need(messages, "messages: empty")
        for number, message in enumerate(messages):
            _check_message(problems, message, f"messages[{number}]")
        _check_pairs(problems, messages)
        return problems


def _steps(answer: ScriptedAnswer) -> Iterator[tuple[JsonObject, str | None, Any, bool]]:
    """Delta, finish reason, usage, and whether the step opens a call."""
    yield {"role": "assistant", "content": ""}, None, None, False
    for piece in answer.pieces(answer.thoughts):
        yield {"reasoning_content": piece}, None, None, False
    for piece in answer.pieces(answer.text):
        yield {"content": piece}, None, None, False
    for index, call in enumerate(answer.calls):
        yield {"tool_calls": [_opening(index, call)]}, None, None, True
        for piece in answer.pieces(call.arguments):
            delta = {"index": index, "function": {"arguments": piece}}
            yield {"tool_calls": [delta]}, None, None, False
    yield {}, answer.finish_reason, None, False
    yield {}, None, answer.usage, False


def _opening(index: int, call: Call) -> JsonObject:
    opening: JsonObject = {"index": index, "type": "function"}
    opening["function"] = {"name": call.name, "arguments": ""}
    return opening if call.id is None else {**opening, "id": call.id}


def _head(model: str) -> JsonObject:
    return {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": model}


def _frame(
    model: str, delta: JsonObject, finish: str | None, usage: Any, opens_call: bool
) -> Frame:
    chunk = _head(model)
    if usage is None:
        chunk["choices"] = [{"index": 0, "delta": delta, "finish_reason": finish}]
    else:
        chunk["choices"] = []
        chunk["usage"] = {
            "prompt_tokens": usage.input,
            "completion_tokens": usage.output,
            "total_tokens": usage.input + usage.output,
            "prompt_tokens_details": {"cached_tokens": usage.cached},
            "completion_tokens_details": {"reasoning_tokens": usage.reasoning},
        }
    return Frame(_data(chunk), finish=bool(finish or usage), opens_call=opens_call)


def _data(value: JsonObject) -> bytes:
    return b"data: " + json.dumps(value, ensure_ascii=False).encode("utf-8", "replace") + b"\n\n"


def _check_tools(problems: Problems, body: JsonObject) -> None:
    functions = [obj(tool.get("function")) for tool in objects(body.get("tools"))]
    names = [text(function.get("name")) for function in functions]
    problems.need("tools" not in body or functions, "tools: empty")
    problems.unique(names, "tools")
    for name, function in zip(names, functions, strict=True):
        problems.need(TOOL_NAME.fullmatch(name), f"tools: bad name {name!r}")
        problems.need(is_schema(function.get("parameters")), f"tools: {name} has no object schema")
    choice: Any = body.get("tool_choice")
    problems.need(choice is None or functions, "tool_choice: without tools")
    if isinstance(choice, dict):
        tool_name = obj(obj(choice).get("function")).get("name")
        problems.need(tool_name in names, f"tool_choice: no tool {tool_name}")
    else:
        problems.need(choice in (None, "auto", "none", "required"), f"tool_choice: {choice}")


def _check_format(problems: Problems, form: JsonObject) -> None:
    if form.get("type") != "json_schema":
        problems.need(form.get("type") in (None, "json_object", "text"), "response_format: type")
        return
    schema = obj(form.get("json_schema"))
    problems.need(TOOL_NAME.fullmatch(text(schema.get("name"))), "response_format: bad name")
    if schema.get("strict"):
        loose = open_objects(obj(schema.get("schema")), all_required=True)
        problems.need(not loose, f"response_format: not strict at {loose}")


def _check_message(problems: Problems, message: JsonObject, path: str) -> None:
    role, content = message.get("role"), message.get("content")
    problems.need(role in _ROLES, f"{path}: role {role}")
    if role == "assistant":
        calls = objects(message.get("tool_calls"))
        problems.need("tool_calls" not in message or calls, f"{path}: empty tool_calls")
        problems.need(content or calls, f"{path}: neither content nor tool_calls")
        for call in calls:
            _check_call(problems, call, path)
    elif role == "tool":
        problems.need(isinstance(content, str), f"{path}: a tool's content is text")
        problems.need(message.get("tool_call_id"), f"{path}: no tool_call_id")
    elif isinstance(content, list):
        problems.need(objects(content), f"{path}: empty content")
        for part in objects(content):
            _check_part(problems, part, path)
    else:
        problems.need(isinstance(content, str) and content, f"{path}: empty content")


def _check_part(problems: Problems, part: JsonObject, path: str) -> None:
    kind = part.get("type")
    if kind == "text":
        problems.need(part.get("text"), f"{path}: empty text")
    elif kind == "image_url":
        problems.image(text(obj(part.get("image_url")).get("url")), path)
    elif kind == "input_audio":
        problems.need(is_base64(text(obj(part.get(kind)).get("data"))), f"{path}: bad audio")
    elif kind == "file":
        problems.image(text(obj(part.get("file")).get("file_data")), path)
    else:
        problems.append(f"{path}: part of type {kind}")


def _check_call(problems: Problems, call: JsonObject, path: str) -> None:
    function = obj(call.get("function"))
    name = text(function.get("name"))
    problems.need(0 < len(text(call.get("id"))) <= _MAX_ID, f"{path}: id of {name}")
    problems.need(call.get("type") == "function", f"{path}: type of {name}")
    problems.need(TOOL_NAME.fullmatch(name), f"{path}: bad name {name!r}")
    problems.need(is_json_object(text(function.get("arguments"))), f"{path}: arguments of {name}")


def _check_pairs(problems: Problems, messages: list[JsonObject]) -> None:
    """Require a result directly after every call, a call for every result, and unique ids."""
    waiting: list[str] = []
    call_ids: list[str] = []
    for number, message in enumerate(messages):
        path = f"messages[{number}]"
        if message.get("role") == "tool":
            answered = text(message.get("tool_call_id"))
            if problems.need(answered in waiting, f"{path}: answers no open call ({answered})"):
                waiting.remove(answered)
            continue
        problems.need(not waiting, f"{path}: calls without answers before it: {waiting}")
        waiting = [text(call.get("id")) for call in objects(message.get("tool_calls"))]
        call_ids += waiting
    problems.need(not waiting, f"calls without answers at the end: {waiting}")
    problems.unique(call_ids, "tool_calls")
