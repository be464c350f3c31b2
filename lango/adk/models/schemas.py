"""Converts everything that ADK and google-genai accept as a schema to JSON Schema."""

from __future__ import annotations

from typing import Any, Final, cast

from google.genai import types
from pydantic import BaseModel, TypeAdapter

from lango.core.values import JsonObject

NO_PARAMETERS: Final[JsonObject] = {"type": "object", "properties": {}}

_ONLY_GEMINIS: Final = frozenset({"nullable", "propertyOrdering", "property_ordering", "example"})
_RENAMED: Final = {"defs": "$defs", "ref": "$ref"}
_OF_SCHEMAS: Final = frozenset({"items", "additionalProperties"})
_OF_LISTS: Final = frozenset({"anyOf"})
_OF_NAMES: Final = frozenset({"properties", "$defs"})


def parameters_of(declaration: types.FunctionDeclaration) -> JsonObject:
    """The schema of a tool's arguments."""
    schema = declaration.parameters_json_schema
    if schema is None:
        schema = declaration.parameters
    return NO_PARAMETERS if schema is None else json_schema(schema)


def json_schema(schema: Any) -> JsonObject:
    """The JSON Schema of a dict, a genai Schema, a pydantic class or any type."""
    if isinstance(schema, types.Schema):
        return _plain(schema.model_dump(mode="json", by_alias=True, exclude_none=True))
    if isinstance(schema, dict):
        plain_schema = cast(JsonObject, schema)
        return _plain(plain_schema) if _is_geminis(plain_schema) else plain_schema
    if isinstance(schema, type) and issubclass(schema, BaseModel):
        return schema.model_json_schema()
    adapter: TypeAdapter[Any] = TypeAdapter(cast(Any, schema))
    return adapter.json_schema()


def _is_geminis(schema: JsonObject) -> bool:
    """Whether a dict writes its types as Gemini does: "OBJECT", not "object"."""
    kind = schema.get("type")
    return isinstance(kind, str) and kind.isupper()


def _plain(schema: JsonObject) -> JsonObject:
    """Gemini's dialect as JSON Schema: lower-case types, null as a type, no Gemini-only keys."""
    plain: JsonObject = {}
    for key, value in schema.items():
        name = _RENAMED.get(key, key)
        if name not in _ONLY_GEMINIS:
            plain[name] = _plain_value(name, value)
    return _nullable(plain) if schema.get("nullable") else plain


def _plain_value(key: str, value: Any) -> Any:
    if key == "type" and isinstance(value, str):
        return value.lower()
    if key in _OF_SCHEMAS and isinstance(value, dict):
        return _plain(cast(JsonObject, value))
    if key in _OF_LISTS and isinstance(value, list):
        return [_plain(item) for item in cast("list[JsonObject]", value)]
    if key in _OF_NAMES and isinstance(value, dict):
        return {name: _plain(item) for name, item in cast("dict[str, JsonObject]", value).items()}
    return value


def _nullable(schema: JsonObject) -> JsonObject:
    if "type" in schema:
        schema["type"] = [schema["type"], "null"]
        if "enum" in schema:
            schema["enum"] = [*schema["enum"], None]
    elif "anyOf" in schema:
        schema["anyOf"] = [*schema["anyOf"], {"type": "null"}]
    return schema
