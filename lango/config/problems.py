"""Error messages for a settings file: the source, the problem, and a similar valid key."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Final, cast

from pydantic import ValidationError

_UNKNOWN: Final = "extra_forbidden"
_OURS: Final = "value_error"
_MISSING: Final = "missing"

Schema = dict[str, Any]


def in_words(error: ValidationError, file: str, variables: Mapping[str, str]) -> str:
    """One line for each problem: its file, or the environment variable that sets the key."""
    from lango.config.settings import Settings

    schema = Settings.model_json_schema()
    lines: list[str] = []
    for detail in error.errors():
        loc = detail["loc"]
        source = variables.get(".".join(map(str, loc)), file)
        lines.append(f"{source}: {_problem(loc, detail['type'], detail['msg'], schema)}")
    return "\n".join(lines)


def _problem(loc: Sequence[str | int], kind: str, message: str, schema: Schema) -> str:
    path = ".".join(map(str, loc))
    if kind == _UNKNOWN:
        return f"{path}: there is no such key.{_suggestion(loc, schema)}"
    if kind == _MISSING:
        return f"{path}: this key is needed."
    if kind == _OURS:
        message = message.removeprefix("Value error, ")
    return f"{path}: {message}." if path else f"{message}."


def _suggestion(loc: Sequence[str | int], schema: Schema) -> str:
    keys = sorted(set(_keys(schema, loc[:-1], schema)))
    near = get_close_matches(str(loc[-1]), keys, n=1)
    if near:
        return f" Did you mean {near[0]}?"
    return f" There are: {', '.join(keys)}." if keys else ""


def _keys(part: Schema, loc: Sequence[str | int], root: Schema) -> Iterator[str]:
    """The keys that the schema allows at a location."""
    for choice in _choices(part, root):
        properties = cast(Schema, choice.get("properties", {}))
        if not loc:
            yield from properties
        elif isinstance(loc[0], int):
            yield from _keys(choice.get("items", {}), loc[1:], root)
        elif loc[0] in properties:
            yield from _keys(properties[loc[0]], loc[1:], root)
        elif isinstance(choice.get("additionalProperties"), dict):
            yield from _keys(choice["additionalProperties"], loc[1:], root)


def _choices(part: Schema, root: Schema) -> Iterator[Schema]:
    if "$ref" in part:
        yield from _choices(root["$defs"][part["$ref"].rpartition("/")[2]], root)
    elif "anyOf" in part:
        for choice in part["anyOf"]:
            yield from _choices(choice, root)
    else:
        yield part
