"""What Google refuses in a request for streamGenerateContent."""

from __future__ import annotations

import re
from typing import Any, Final

from lango.core.values import JsonObject
from lango.testing.wires.http import HttpRequest
from lango.testing.wires.rules import Problems, obj, objects, text

_FIELDS: Final = frozenset(
    {
        "contents",
        "systemInstruction",
        "tools",
        "toolConfig",
        "generationConfig",
        "safetySettings",
        "cachedContent",
    }
)
_NAME: Final = re.compile(r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,63}")
_DATA: Final = ("text", "inlineData", "fileData", "functionCall", "functionResponse")
_MAX_STOPS: Final = 5
_SIGNING: Final = re.compile(r"/models/gemini-([3-9]|\d\d)")


def check(request: HttpRequest, body: JsonObject) -> Problems:
    """All faults of a request."""
    problems = Problems()
    problems.need(request.headers.get("x-goog-api-key"), "no key")
    problems.need("alt=sse" in request.target, "alt=sse: missing")
    problems.only(body, _FIELDS, "request")
    config = obj(body.get("generationConfig"))
    problems.between(config, "temperature", 0, 2)
    problems.between(config, "topP", 0, 1)
    problems.between(config, "maxOutputTokens", 1, 1e9)
    stops: list[Any] = config.get("stopSequences") or []
    problems.need(len(stops) <= _MAX_STOPS, f"stopSequences: more than {_MAX_STOPS}")
    schema = "responseJsonSchema" in config or "responseSchema" in config
    is_json = config.get("responseMimeType") == "application/json"
    problems.need(is_json or not schema, "responseMimeType: must be JSON for a schema")
    if "systemInstruction" in body:
        parts = objects(obj(body["systemInstruction"]).get("parts"))
        problems.need(any(text(part.get("text")) for part in parts), "systemInstruction: empty")
    names = _check_tools(problems, body)
    calling = obj(obj(body.get("toolConfig")).get("functionCallingConfig"))
    missing = set(calling.get("allowedFunctionNames") or ()) - set(names)
    problems.need(not missing, f"allowedFunctionNames: {missing}")
    _check_contents(
        problems, objects(body.get("contents")), _SIGNING.search(request.path) is not None
    )
    return problems


def _check_tools(problems: Problems, body: JsonObject) -> list[str]:
    declared = [
        declaration
        for tool in objects(body.get("tools"))
        for declaration in objects(tool.get("functionDeclarations"))
    ]
    names = [text(declaration.get("name")) for declaration in declared]
    problems.unique(names, "functionDeclarations")
    for name in names:
        problems.need(_NAME.fullmatch(name), f"functionDeclarations: bad name {name!r}")
    return names


def _check_contents(problems: Problems, contents: list[JsonObject], signing: bool) -> None:
    problems.need(contents, "contents: not specified")
    roles = [text(content.get("role")) for content in contents]
    problems.need(set(roles) <= {"user", "model"}, f"contents: roles {set(roles)}")
    problems.need(not roles or roles[0] == "user", "contents: must begin with a user turn")
    problems.need(not roles or roles[-1] == "user", "contents: must end with a user turn")
    waiting: list[tuple[str, str]] = []
    last_question = max(
        (n for n, content in enumerate(contents) if _is_question(content)), default=0
    )
    for number, content in enumerate(contents):
        path = f"contents[{number}]"
        parts = objects(content.get("parts"))
        problems.need(parts, f"{path}: no parts")
        for part in parts:
            _check_part(problems, part, path, is_only=len(parts) == 1)
        answered = [_key(part["functionResponse"]) for part in parts if "functionResponse" in part]
        problems.need(
            sorted(answered) == sorted(waiting),
            f"{path}: function responses {answered} for calls {waiting}",
        )
        calls = [part for part in parts if "functionCall" in part]
        waiting = [_key(call["functionCall"]) for call in calls]
        if calls and signing and number > last_question:
            problems.need("thoughtSignature" in calls[0], f"{path}: missing a thought_signature")
    problems.need(not waiting, f"function calls without responses: {waiting}")


def _is_question(content: JsonObject) -> bool:
    parts = objects(content.get("parts"))
    return content.get("role") == "user" and all("functionResponse" not in part for part in parts)


def _key(function: Any) -> tuple[str, str]:
    call = obj(function)
    return text(call.get("id")), text(call.get("name"))


def _check_part(problems: Problems, part: JsonObject, path: str, *, is_only: bool) -> None:
    kinds = [key for key in _DATA if key in part]
    problems.need(len(kinds) == 1, f"{path}: a part must hold exactly one thing, not {kinds}")
    if kinds == ["text"]:
        # Gemini ends calls with an empty text, which ADK sends back beside them.
        may_be_empty = not is_only or "thoughtSignature" in part
        problems.need(text(part["text"]) or may_be_empty, f"{path}: empty text parameter")
    elif kinds == ["inlineData"]:
        data = obj(part["inlineData"])
        kind = data.get("mimeType") or data.get("mime_type")  # both spellings are accepted
        problems.need(kind and data.get("data"), f"{path}: inlineData")
    elif kinds == ["fileData"]:
        file = obj(part["fileData"])
        problems.need(file.get("fileUri") or file.get("file_uri"), f"{path}: fileData")
    elif kinds == ["functionCall"]:
        args: Any = obj(part["functionCall"]).get("args", {})
        problems.need(isinstance(args, dict), f"{path}: args is no object")
    elif kinds == ["functionResponse"]:
        response: Any = obj(part["functionResponse"]).get("response")
        problems.need(isinstance(response, dict), f"{path}: response is no object")
