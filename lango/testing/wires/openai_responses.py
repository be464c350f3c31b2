"""The server side of OpenAI's Responses API, and what OpenAI refuses there."""

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
    is_json_object,
    is_schema,
    obj,
    objects,
    open_objects,
    text,
)
from lango.testing.wires.script import Call, Frame, ScriptedAnswer

_FIELDS: Final = frozenset(
    {"model", "input", "instructions", "stream", "store", "tools", "tool_choice", "text"}
    | {"temperature", "top_p", "max_output_tokens", "reasoning", "include"}
)
_MAX_ID: Final = 64
_REASONS: Final = {"length": "max_output_tokens", "content_filter": "content_filter"}

Step = tuple[str, JsonObject]


class OpenAIResponsesWire(OpenAIRefusals):
    """The Responses API."""

    name = "openai_responses"
    base = "/v1"
    path = r"/v1/responses"

    def frames(self, answer: ScriptedAnswer, model: str) -> list[Frame]:
        """An answer as the vendor streams it."""
        return [_frame(n, *step) for n, step in enumerate(_steps(answer, model))]

    def empty(self, model: str) -> bytes:
        """An empty event."""
        return _frame(0, "response.in_progress", {"response": _response(model, "in_progress")}).data

    def error_frame(self) -> bytes:
        """An error within an answer."""
        error = {"code": "server_error", "message": "The server had an error.", "param": None}
        return _frame(9, "error", error).data

    def problems(self, request: HttpRequest, body: JsonObject) -> Problems:
        """What OpenAI would refuse in the request."""
        problems = common_problems(request, body, _FIELDS)
        problems.between(body, "max_output_tokens", 1, 1e9)
        _check_tools(problems, body)
        _check_format(problems, obj(obj(body.get("text")).get("format")))
        request_input: Any = body.get("input")
        items = (
            [{"role": "user", "content": request_input}]
            if isinstance(request_input, str)
            else objects(request_input)
        )
        problems.need(items, "input: empty")
        for number, item in enumerate(items):
            _check_item(problems, item, f"input[{number}]")
        _check_order(problems, items)
        return problems


def _steps(answer: ScriptedAnswer, model: str) -> Iterator[Step]:
    yield "response.created", {"response": _response(model, "in_progress")}
    output: list[JsonObject] = []
    if answer.thoughts or answer.signature:
        yield from _reasoning(answer, output)
    if answer.text:
        yield from _message(answer, output)
    for call in answer.calls:
        yield from _call(answer, call, output)
    reason = _REASONS.get(answer.finish_reason)
    ended = _response(model, "incomplete" if reason else "completed", output, answer)
    if reason:
        ended["incomplete_details"] = {"reason": reason}
    yield f"response.{ended['status']}", {"response": ended}


def _reasoning(answer: ScriptedAnswer, output: list[JsonObject]) -> Iterator[Step]:
    item_fields: JsonObject = {"output_index": len(output)}
    item: JsonObject = {"id": "rs_1", "type": "reasoning", "summary": []}
    yield "response.output_item.added", {**item_fields, "item": item}
    event_fields = {**item_fields, "item_id": "rs_1", "summary_index": 0}
    part = {"type": "summary_text", "text": ""}
    if answer.thoughts:
        yield "response.reasoning_summary_part.added", {**event_fields, "part": part}
        for piece in answer.pieces(answer.thoughts):
            yield "response.reasoning_summary_text.delta", {**event_fields, "delta": piece}
        item = {**item, "summary": [{**part, "text": answer.thoughts}]}
    if answer.signature:
        item = {**item, "encrypted_content": answer.signature}
    yield "response.output_item.done", {**item_fields, "item": item}
    output.append(item)


def _message(answer: ScriptedAnswer, output: list[JsonObject]) -> Iterator[Step]:
    item_fields: JsonObject = {"output_index": len(output)}
    item: JsonObject = {"id": "msg_1", "type": "message", "role": "assistant"}
    yield "response.output_item.added", {**item_fields, "item": {**item, "content": []}}
    event_fields = {**item_fields, "item_id": "msg_1", "content_index": 0}
    part: JsonObject = {"type": "output_text", "text": "", "annotations": []}
    yield "response.content_part.added", {**event_fields, "part": part}
    for piece in answer.pieces(answer.text):
        yield "response.output_text.delta", {**event_fields, "delta": piece, "logprobs": []}
    yield "response.output_text.done", {**event_fields, "text": answer.text, "logprobs": []}
    full_part = {**part, "text": answer.text}
    yield "response.content_part.done", {**event_fields, "part": full_part}
    item |= {"status": "completed", "content": [full_part]}
    yield "response.output_item.done", {**item_fields, "item": item}
    output.append(item)


def _call(answer: ScriptedAnswer, call: Call, output: list[JsonObject]) -> Iterator[Step]:
    index = len(output)
    item: JsonObject = {"id": f"fc_{index}", "type": "function_call", "name": call.name}
    if call.id is not None:
        item["call_id"] = call.id
    opening = {**item, "arguments": "", "status": "in_progress"}
    yield "response.output_item.added", {"output_index": index, "item": opening}
    event_fields = {"output_index": index, "item_id": item["id"]}
    for piece in answer.pieces(call.arguments):
        yield "response.function_call_arguments.delta", {**event_fields, "delta": piece}
    arguments_event = {**event_fields, "arguments": call.arguments}
    yield "response.function_call_arguments.done", arguments_event
    item |= {"arguments": call.arguments, "status": "completed"}
    yield "response.output_item.done", {"output_index": index, "item": item}
    output.append(item)


def _response(
    model: str,
    status: str,
    output: list[JsonObject] | None = None,
    answer: ScriptedAnswer | None = None,
) -> JsonObject:
    response: JsonObject = {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "model": model,
        "status": status,
        "output": output or [],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "error": None,
        "incomplete_details": None,
    }
    if answer is not None:
        usage = answer.usage
        response["usage"] = {
            "input_tokens": usage.input,
            "input_tokens_details": {
                "cached_tokens": usage.cached,
                "cache_write_tokens": usage.written,
            },
            "output_tokens": usage.output,
            "output_tokens_details": {"reasoning_tokens": usage.reasoning},
            "total_tokens": usage.input + usage.output,
        }
    return response


def _frame(number: int, kind: str, fields: JsonObject) -> Frame:
    value = {"type": kind, "sequence_number": number, **fields}
    data = json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")
    opens = kind == "response.output_item.added" and fields["item"]["type"] == "function_call"
    finish = kind in ("response.completed", "response.incomplete")
    return Frame(b"event: %b\ndata: %b\n\n" % (kind.encode(), data), finish, opens)


def _check_tools(problems: Problems, body: JsonObject) -> None:
    tools = objects(body.get("tools"))
    names = [text(tool.get("name")) for tool in tools]
    problems.need("tools" not in body or tools, "tools: empty")
    problems.unique(names, "tools")
    for name, tool in zip(names, tools, strict=True):
        problems.need(tool.get("type") == "function", f"tools: type of {name}")
        problems.need(TOOL_NAME.fullmatch(name), f"tools: bad name {name!r}")
        problems.need(is_schema(tool.get("parameters")), f"tools: {name} has no object schema")
        if tool.get("strict", True):
            loose = open_objects(obj(tool.get("parameters")), all_required=True)
            problems.need(not loose, f"tools: {name} is not strict at {loose}")
    choice: Any = body.get("tool_choice")
    problems.need(choice is None or tools, "tool_choice: without tools")
    if isinstance(choice, dict):
        tool_choice = obj(choice)
        allowed_tools = (
            objects(tool_choice.get("tools"))
            if tool_choice.get("type") == "allowed_tools"
            else [tool_choice]
        )
        missing = [tool.get("name") for tool in allowed_tools if tool.get("name") not in names]
        problems.need(allowed_tools and not missing, f"tool_choice: no tools {missing}")
    else:
        problems.need(choice in (None, "auto", "none", "required"), f"tool_choice: {choice}")


def _check_format(problems: Problems, form: JsonObject) -> None:
    if form.get("type") == "json_schema":
        problems.need(TOOL_NAME.fullmatch(text(form.get("name"))), "text.format: bad name")
        loose = open_objects(obj(form.get("schema")), all_required=True)
        problems.need(not form.get("strict") or not loose, f"text.format: not strict at {loose}")


def _check_item(problems: Problems, item: JsonObject, path: str) -> None:
    kind = item.get("type", "message")
    if kind == "message":
        _check_message(problems, item, path)
    elif kind == "function_call":
        name = text(item.get("name"))
        problems.need(0 < len(text(item.get("call_id"))) <= _MAX_ID, f"{path}: call_id of {name}")
        problems.need(TOOL_NAME.fullmatch(name), f"{path}: bad name {name!r}")
        problems.need(is_json_object(text(item.get("arguments"))), f"{path}: arguments of {name}")
    elif kind == "function_call_output":
        problems.need(item.get("call_id"), f"{path}: no call_id")
        for part in objects(item.get("output")):
            _check_part(problems, part, path)
        problems.need(item.get("output"), f"{path}: empty output")
    elif kind == "reasoning":
        problems.need(item.get("id") and "summary" in item, f"{path}: not a reasoning item")
        problems.need(item.get("encrypted_content"), f"{path}: not found, for nothing was stored")
    else:
        problems.append(f"{path}: item of type {kind}")


def _check_message(problems: Problems, item: JsonObject, path: str) -> None:
    role, content = item.get("role"), item.get("content")
    problems.need(role in ("user", "assistant", "system", "developer"), f"{path}: role {role}")
    problems.need(content, f"{path}: empty content")
    if role == "assistant":
        problems.need(isinstance(content, str), f"{path}: an assistant's input_* parts")
    for part in objects(content):
        _check_part(problems, part, path)


def _check_part(problems: Problems, part: JsonObject, path: str) -> None:
    kind = part.get("type")
    if kind == "input_text":
        problems.need(part.get("text"), f"{path}: empty text")
    elif kind == "input_image":
        problems.image(text(part.get("image_url")), path)
    elif kind == "input_file":
        problems.image(text(part.get("file_data") or part.get("file_url")), path)
    else:
        problems.append(f"{path}: part of type {kind}")


def _check_order(problems: Problems, items: list[JsonObject]) -> None:
    """Require a result for every call, a call for every result, and an item after reasoning."""
    call_ids: list[str] = []
    answered: list[str] = []
    for number, item in enumerate(items):
        kind = item.get("type", "message")
        if kind == "function_call":
            call_ids.append(text(item.get("call_id")))
        elif kind == "function_call_output":
            answered.append(text(item.get("call_id")))
            problems.need(answered[-1] in call_ids, f"input[{number}]: no call {answered[-1]}")
        elif kind == "reasoning":
            after = items[number + 1] if number + 1 < len(items) else {}
            leads = after.get("type") in ("reasoning", "function_call")
            leads = leads or after.get("role") == "assistant"
            problems.need(leads, f"input[{number}]: a thought without what followed it")
    problems.need(set(call_ids) == set(answered), f"no tool output found for {set(call_ids)}")
    problems.unique(call_ids, "function_call")
    problems.unique(answered, "function_call_output")
