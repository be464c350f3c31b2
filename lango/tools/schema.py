"""Validates arguments against a tool's JSON Schema, with messages that a model can act on."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, Final, cast

from lango.core.values import JsonObject
from lango.errors import InvalidToolError, ToolArgumentsError

MAX_REASON: Final = 200


def check_parameters(name: str, parameters: JsonObject) -> None:
    """Raise InvalidToolError unless this is the JSON Schema of an object."""
    jsonschema = _jsonschema()
    try:
        jsonschema.Draft202012Validator.check_schema(parameters)
    except jsonschema.SchemaError as error:
        raise InvalidToolError(
            f"The parameters of {name} are no JSON Schema: {error.message[:MAX_REASON]}"
        ) from error
    if parameters.get("type") != "object":
        raise InvalidToolError(
            f'The parameters of {name} must be the JSON Schema of an object: {{"type": "object", '
            '"properties": …}.'
        )


def check_arguments(parameters: JsonObject, arguments: Mapping[str, Any]) -> JsonObject:
    """The arguments, if the schema allows them; else ToolArgumentsError."""
    values = dict(arguments)
    jsonschema = _jsonschema()
    validator = jsonschema.Draft202012Validator(parameters, registry=_no_remote())
    error = jsonschema.exceptions.best_match(validator.iter_errors(values))
    if error is not None:
        location = location_of(list(error.absolute_path))
        # Not chained: the vendor's error carries the whole input into the log.
        raise ToolArgumentsError(wrong_argument(location, _reason(error))) from None
    return values


def _jsonschema() -> Any:
    """Import jsonschema lazily, as it is large; untyped, as its types are incomplete."""
    import jsonschema

    return cast(Any, jsonschema)


@cache
def _no_remote() -> Any:
    """An empty registry: the default one would fetch remote $refs."""
    from referencing import Registry

    registry: Registry[Any] = Registry()
    return registry


def location_of(path: list[str | int]) -> str:
    """`["rows", 2, "name"]` → `rows[2].name`."""
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}"
    return text.removeprefix(".")


def wrong_argument(location: str, reason: str) -> str:
    """The message for invalid arguments."""
    subject = f"argument {location}" if location else "arguments"
    return f"Wrong {subject}: {reason[:MAX_REASON]}. Correct the call and try again."


def _reason(error: Any) -> str:
    """What is wrong, without the value, which may be long or private."""
    expected = error.validator_value
    match error.validator:
        case "required":
            missing = [name for name in expected if name not in error.instance]
            return f"{', '.join(missing)} missing"
        case "additionalProperties" if expected is False:
            properties = error.schema.get("properties", {})
            unknown = [str(name)[:60] for name in error.instance if name not in properties]
            return f"there is no {', '.join(unknown)}; known are {', '.join(properties) or 'none'}"
        case "type":
            return f"must be {' or '.join([expected] if isinstance(expected, str) else expected)}"
        case "enum":
            return f"must be one of {', '.join(map(repr, expected))}"
        case rule:
            return f"must satisfy {rule}: {str(expected)[:100]}"
