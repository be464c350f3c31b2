"""What a tool must be before a model hears of it."""

from typing import Any

import pytest

from lango.errors import ConfigError, InvalidToolError, ToolArgumentsError
from lango.tools.base import Tool

PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
}


def weather(**fields: Any) -> Tool:
    given: dict[str, Any] = {
        "name": "weather",
        "description": "The weather in a city.",
        "parameters": PARAMETERS,
        "run": print,
    }
    return Tool(**(given | fields))


@pytest.mark.parametrize("name", ["a", "_", "Weather-2_x", "a" * 64])
def test_names_that_every_provider_takes(name: str) -> None:
    assert weather(name=name).name == name


@pytest.mark.parametrize("name", ["", "2x", "-x", "a b", "ä", "a.b", "a" * 65, "a\n", "a/b"])
def test_names_that_some_provider_refuses(name: str) -> None:
    with pytest.raises(InvalidToolError, match="cannot be a tool's name: take 1 to 64"):
        weather(name=name)


@pytest.mark.parametrize("timeout", [0, -1, float("nan")])
def test_a_timeout_is_some_time(timeout: float) -> None:
    with pytest.raises(InvalidToolError, match="seconds above 0"):
        weather(timeout=timeout)


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({"type": "string"}, "JSON Schema of an object"),
        ({}, "JSON Schema of an object"),
        ({"type": "object", "properties": []}, "no JSON Schema"),
        ({"type": "thing"}, "no JSON Schema"),
    ],
)
def test_parameters_are_the_schema_of_an_object(parameters: Any, expected: str) -> None:
    with pytest.raises(InvalidToolError, match=expected):
        weather(parameters=parameters)


def test_a_wrong_tool_is_an_error_of_the_settings() -> None:
    assert issubclass(InvalidToolError, ConfigError)


def test_arguments_are_checked_and_handed_on_as_they_are() -> None:
    tool = weather()
    given = {"city": "Oslo", "more": [1]}
    assert tool.checked(given) == given
    with pytest.raises(ToolArgumentsError, match="city missing"):
        tool.checked({})
