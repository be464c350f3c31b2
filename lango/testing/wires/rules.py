"""Shared code of the request validators of all provider APIs."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Collection
from typing import Any, Final, cast

from lango.core.values import JsonObject

TOOL_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_DATA_URL: Final = re.compile(r"data:([\w.+-]+/[\w.+-]+);base64,(.+)", re.DOTALL)


class Problems(list[str]):
    """The faults of a request."""

    def need(self, holds: object, problem: str) -> bool:
        """Record the problem unless the condition holds; returns whether it holds."""
        if not holds:
            self.append(problem)
        return bool(holds)

    def only(self, body: JsonObject, allowed: Collection[str], path: str) -> None:
        """Allow only these keys."""
        for key in body.keys() - set(allowed):
            self.append(f"{path}: unknown field {key}")

    def unique(self, names: list[str], path: str) -> None:
        """Allow no name twice."""
        duplicates = sorted({name for name in names if names.count(name) > 1})
        self.need(not duplicates, f"{path}: {', '.join(duplicates)} more than once")

    def between(self, body: JsonObject, key: str, low: float, high: float) -> None:
        """Require a number, if present, to be within bounds."""
        value: Any = body.get(key)
        fits = value is None or (isinstance(value, int | float) and low <= value <= high)
        self.need(fits, f"{key}: {value} is not between {low:g} and {high:g}")

    def image(self, url: str, path: str) -> None:
        """Require a web address or a valid data URL."""
        if url.startswith(("http://", "https://")):
            return
        data = _DATA_URL.fullmatch(url)
        self.need(data is not None and is_base64(data[2]), f"{path}: no usable address")


def obj(value: Any) -> JsonObject:
    """The value if it is an object, else an empty one."""
    return cast(JsonObject, value) if isinstance(value, dict) else {}


def objects(value: Any) -> list[JsonObject]:
    """The items of a list as objects; empty if the value is not a list."""
    return [obj(item) for item in cast(list[Any], value)] if isinstance(value, list) else []


def text(value: Any) -> str:
    """The value if it is a text, else an empty one."""
    return value if isinstance(value, str) else ""


def is_base64(data: str) -> bool:
    """Whether this is valid, non-empty base64."""
    try:
        return bool(base64.b64decode(data, validate=True))
    except (binascii.Error, ValueError):
        return False


def is_json_object(data: str) -> bool:
    """Whether the text is a JSON object."""
    try:
        return isinstance(json.loads(data), dict)
    except (ValueError, RecursionError):
        return False


def is_schema(value: Any) -> bool:
    """Whether this is the schema of an object, as tools require."""
    schema = obj(value)
    return schema.get("type") == "object" and isinstance(schema.get("properties"), dict)


def open_objects(schema: JsonObject, *, all_required: bool) -> list[str]:
    """The paths of objects in a schema that a strict mode refuses."""
    paths: list[str] = []

    def look(node: JsonObject, path: str) -> None:
        if node.get("type") == "object" or "properties" in node:
            properties = obj(node.get("properties"))
            short = all_required and set(node.get("required") or ()) != set(properties)
            if node.get("additionalProperties") is not False or short:
                paths.append(path)
        for key in ("properties", "$defs"):
            for name, inner in obj(node.get(key)).items():
                look(obj(inner), f"{path}.{name}")
        for key in ("anyOf", "oneOf", "allOf"):
            for inner in objects(node.get(key)):
                look(inner, f"{path}.{key}")
        if isinstance(node.get("items"), dict):
            look(obj(node["items"]), f"{path}[]")

    look(schema, "$")
    return paths
