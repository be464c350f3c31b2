"""Typed functions as tools."""

import enum
import inspect
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Annotated, Any, Literal, Optional

import pytest
from pydantic import BaseModel, Field

import lango
from lango.errors import InvalidToolError, ToolArgumentsError
from lango.tools.base import CallInfo, Tool
from lango.tools.calling import call
from lango.tools.function import tool

INFO = CallInfo("call-1", "turn-1/call-1", "app", "user", "session")


class Unit(enum.Enum):
    CELSIUS = "C"
    FAHRENHEIT = "F"


class Place(BaseModel):
    name: str
    height: int = 0


@dataclass
class Span:
    first: date
    last: date


@tool
def forecast(
    place: Place,
    unit: Unit = Unit.CELSIUS,
    days: Annotated[int, Field(ge=1, le=9, description="How many.")] = 3,
    style: Literal["short", "long"] = "short",
    span: Span | None = None,
    tags: Optional[list[str]] = None,  # noqa: UP045 - people write it
) -> str:
    """The weather to come.

    Args:
        place: Where.
        days: Said twice; the annotation wins.
        tags: What to look for.
    """
    return f"{place.name} {unit.name} {days} {style} {span} {tags}"


async def run(made: Tool, arguments: dict[str, Any]) -> Any:
    return await call(made, made.checked(arguments), INFO)


def test_the_root_has_the_decorator() -> None:
    assert lango.tool is tool


def test_types_become_the_schema() -> None:
    properties = forecast.parameters["properties"]
    assert forecast.parameters["required"] == ["place"]
    assert forecast.parameters["additionalProperties"] is False
    assert properties["days"] == {
        "type": "integer",
        "minimum": 1,
        "maximum": 9,
        "default": 3,
        "description": "How many.",
    }
    assert properties["style"] == {"type": "string", "enum": ["short", "long"], "default": "short"}
    assert properties["place"] == {"$ref": "#/$defs/Place", "description": "Where."}
    assert properties["tags"]["anyOf"] == [
        {"type": "array", "items": {"type": "string"}},
        {"type": "null"},
    ]
    assert properties["tags"]["description"] == "What to look for."
    assert forecast.parameters["$defs"]["Unit"]["enum"] == ["C", "F"]


def test_the_docstring_becomes_the_description() -> None:
    assert (forecast.name, forecast.description) == ("forecast", "The weather to come.")


async def test_arguments_are_converted() -> None:
    given = {
        "place": {"name": "Oslo"},
        "unit": "F",
        "days": "4",
        "span": {"first": "2026-01-02", "last": "2026-01-03"},
    }
    span = Span(date(2026, 1, 2), date(2026, 1, 3))
    assert await run(forecast, given) == f"Oslo FAHRENHEIT 4 short {span} None"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({}, "Wrong argument place: field required."),
        ({"place": {}}, "Wrong argument place.name: field required."),
        ({"place": {"name": "x"}, "days": 10}, "Wrong argument days: input should be less than"),
        ({"place": {"name": "x"}, "unit": "K"}, "Wrong argument unit: input should be 'C' or 'F'"),
        ({"place": {"name": "x"}, "wind": 1}, "Wrong argument wind: extra inputs"),
        ({"place": {"name": "x"}, "tags": [1]}, "Wrong argument tags[0]: input should be a valid"),
    ],
)
def test_wrong_arguments_are_named(arguments: dict[str, Any], expected: str) -> None:
    with pytest.raises(ToolArgumentsError) as caught:
        forecast.checked(arguments)
    assert str(caught.value).startswith(expected)
    assert caught.value.__suppress_context__  # pydantic's error would show the input in the log


def test_it_is_still_the_function() -> None:
    assert forecast(Place(name="Rome"), days=1) == "Rome CELSIUS 1 short None None"
    assert vars(forecast)["__name__"] == "forecast"
    assert (forecast.__doc__ or "").startswith("The weather to come.")
    assert list(inspect.signature(forecast).parameters)[:2] == ["place", "unit"]


def test_what_the_tool_is_to_be_can_be_said() -> None:
    @tool(
        name="pay_now",
        description="Pays.",
        idempotent=True,
        require_confirmation=True,
        timeout=None,
    )
    async def pay(amount: Decimal) -> None:
        """Hidden."""
        del amount

    assert (pay.name, pay.description, pay.timeout) == ("pay_now", "Pays.", None)
    assert (pay.idempotent, pay.require_confirmation) == (True, True)
    assert (forecast.idempotent, forecast.require_confirmation, forecast.timeout) == (
        False,
        False,
        60.0,
    )


async def test_the_call_itself_is_injected() -> None:
    @tool
    def who(name: str, /, call: CallInfo, *, other: CallInfo | None = None) -> tuple[str, ...]:
        return name, call.key, other.session_id if other else ""

    assert list(who.parameters["properties"]) == ["name"]
    assert await run(who, {"name": "x"}) == ("x", "turn-1/call-1", "session")
    with pytest.raises(ToolArgumentsError):
        who.checked({"name": "x", "call": {"key": "forged"}})


async def test_names_that_pydantic_uses_itself() -> None:
    @tool
    def odd(json: str, copy: int, model_fields: bool, _private: str, schema: str = "s") -> str:
        return f"{json} {copy} {model_fields} {_private} {schema}"

    given = {"json": "j", "copy": 1, "model_fields": True, "_private": "p"}
    assert list(odd.parameters["properties"]) == [*given, "schema"]
    assert await run(odd, given) == "j 1 True p s"


async def test_no_parameters_and_no_docstring() -> None:
    @tool
    async def ping() -> str:
        return "pong"

    assert ping.parameters == {
        "type": "object",
        "properties": {},
        "additionalProperties": False,
    }
    assert ping.description == ""
    assert await run(ping, {}) == "pong"


async def test_a_bound_method() -> None:
    class Counter:
        total = 0

        def add(self, number: int) -> int:
            """Add."""
            self.total += number
            return self.total

    counter = Counter()
    made = tool(counter.add)
    assert [await run(made, {"number": n}) for n in (1, 2)] == [1, 3]
    with pytest.raises(InvalidToolError, match="self has no type; of a method, take the bound one"):
        tool(Counter.add)


async def test_defaults_that_json_cannot_write() -> None:
    marker = object()

    @tool
    def take(value: Any = marker) -> bool:
        return value is marker

    assert await run(take, {})


def untyped(x) -> None:  # pyright: ignore
    """Says nothing of x."""


def variadic(*x: int) -> None:
    """Takes any number."""


def keywords(**x: int) -> None:
    """Takes any name."""


def socket(x: memoryview) -> None:
    """Takes what JSON has no word for."""


def unknown(x: "Nowhere") -> None:  # pyright: ignore  # noqa: F821
    """Refers to nothing."""


async def yielding(x: int) -> AsyncIterator[int]:
    """Never returns."""
    yield x


WRONG: list[tuple[Any, str]] = [
    (untyped, "the parameter x has no type"),
    (variadic, r"takes \*x"),
    (keywords, r"takes \*x"),
    (socket, "has no JSON Schema .* CallInfo for the call itself"),
    (unknown, "types of unknown cannot be read"),
    (yielding, "yields"),
    (Place, "is no function"),
]


@pytest.mark.parametrize(("function", "expected"), WRONG)
def test_what_cannot_be_a_tool(function: Any, expected: str) -> None:
    with pytest.raises(InvalidToolError, match=expected):
        tool(function)
