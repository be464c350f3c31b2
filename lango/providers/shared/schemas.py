"""JSON Schemas in the forms that provider APIs require."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, cast

from lango.core.values import JsonObject, json_text

_MAPS: Final = ("properties", "$defs", "definitions")
_LISTS: Final = ("anyOf", "oneOf", "allOf", "prefixItems")
_SINGLES: Final = ("items", "not")
_PLAIN_KEYS: Final = frozenset(
    {"type", "anyOf", "allOf", "$ref", "$defs", "enum", "const", "description", "title"}
) | {"properties", "required", "additionalProperties", "items"}

_NEVER_STRICT: Final = frozenset({"oneOf", "allOf", "not", "if", "prefixItems"}) | {
    "dependentRequired",
    "dependentSchemas",
    "patternProperties",
}
_STRICT_FORMATS: Final = frozenset(
    {"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"}
)

EMPTY: Final[JsonObject] = {"type": "object", "properties": {}}


def tool_parameters(schema: JsonObject) -> JsonObject:
    """The schema of a tool's arguments: always an object with `properties`."""
    if schema.get("type") != "object":
        return {**EMPTY, **schema, "type": "object"}
    return schema if "properties" in schema else {**schema, "properties": {}}


def closed(schema: JsonObject) -> JsonObject:
    """A copy in which objects with `properties` get `additionalProperties: false` by default."""
    copy = _with_inner(schema, closed)
    if schema.get("properties"):
        copy.setdefault("additionalProperties", False)
    return copy


def is_open(schema: JsonObject) -> bool:
    """Whether some object in it may have undeclared properties."""
    if schema.get("type") == "object" or "properties" in schema:
        if not schema.get("properties"):
            return True
        if schema.get("additionalProperties", False) is not False:
            return True
    return any(map(is_open, _inner(schema)))


def is_strict(schema: JsonObject) -> bool:
    """Whether OpenAI's strict mode accepts it: closed objects, every property required."""
    if not _NEVER_STRICT.isdisjoint(schema) or ("$ref" in schema and len(schema) > 1):
        return False
    if schema.get("format", "date") not in _STRICT_FORMATS:
        return False
    properties = cast(JsonObject, schema.get("properties") or {})
    if schema.get("type") == "object" or properties:
        required = set(cast(list[str], schema.get("required") or []))
        if (
            not properties
            or required != set(properties)
            or schema.get("additionalProperties", True)
        ):
            return False
    return all(map(is_strict, _inner(schema)))


def plain(schema: JsonObject) -> JsonObject:
    """A copy with the keywords that every API accepts; the others go into the description."""
    copy = _with_inner(schema, plain)
    if "oneOf" in copy:
        copy["anyOf"] = copy.pop("oneOf")
    left_out = {key: copy.pop(key) for key in sorted(copy.keys() - _PLAIN_KEYS)}
    left_out.pop("default", None)
    if left_out:
        description = str(copy.get("description", ""))
        copy["description"] = f"{description} {json_text(left_out)}".strip()
    return copy


def in_words(schema: JsonObject) -> str:
    """An instruction for a model whose API cannot enforce the schema."""
    return f"Answer with JSON alone, of this schema: {json_text(schema)}"


def _with_inner(schema: JsonObject, change: Callable[[JsonObject], JsonObject]) -> JsonObject:
    def changed(value: Any) -> Any:
        return change(cast(JsonObject, value)) if isinstance(value, dict) else value

    copy = dict(schema)
    for key, value in schema.items():
        if key in _MAPS and isinstance(value, dict):
            copy[key] = {name: changed(inner) for name, inner in cast(JsonObject, value).items()}
        elif key in _LISTS and isinstance(value, list):
            copy[key] = [changed(inner) for inner in cast(list[Any], value)]
        elif key in _SINGLES:
            copy[key] = changed(value)
    return copy


def _inner(schema: JsonObject) -> list[JsonObject]:
    schemas: list[JsonObject] = []

    def keep(inner: JsonObject) -> JsonObject:
        schemas.append(inner)
        return inner

    _with_inner(schema, keep)
    return schemas
