"""Arguments against a schema, and the message that a model receives about wrong ones."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lango.errors import ToolArgumentsError
from lango.tools.schema import check_arguments, location_of

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "unit": {"enum": ["C", "F"]},
        "days": {"type": "integer", "minimum": 1},
        "places": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"name": {"type": ["string", "null"]}},
                "required": ["name"],
            },
        },
    },
    "required": ["unit"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({}, "Wrong arguments: unit missing."),
        ({"unit": "K"}, "Wrong argument unit: must be one of 'C', 'F'."),
        ({"unit": "C", "days": "2"}, "Wrong argument days: must be integer."),
        ({"unit": "C", "days": 0}, "Wrong argument days: must satisfy minimum: 1."),
        ({"unit": "C", "places": [{"name": "a"}, {}]}, "Wrong argument places[1]: name missing."),
        (
            {"unit": "C", "places": [{"name": 1}]},
            "Wrong argument places[0].name: must be string or null.",
        ),
        (
            {"unit": "C", "city": "Oslo"},
            "Wrong arguments: there is no city; known are unit, days, places.",
        ),
    ],
)
def test_the_message_names_the_field(arguments: dict[str, Any], expected: str) -> None:
    with pytest.raises(ToolArgumentsError) as caught:
        check_arguments(SCHEMA, arguments)
    assert str(caught.value) == f"{expected} Correct the call and try again."


def test_the_message_does_not_repeat_the_value() -> None:
    with pytest.raises(ToolArgumentsError) as caught:
        check_arguments(SCHEMA, {"unit": "hunter2" * 1000})
    assert "hunter2" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


def test_a_reference_to_elsewhere_is_not_fetched() -> None:
    schema = {"type": "object", "properties": {"a": {"$ref": "http://127.0.0.1:1/schema.json"}}}
    with pytest.raises(Exception, match="Unresolvable"):
        check_arguments(schema, {"a": 1})


def test_the_location_of_an_argument() -> None:
    assert location_of([]) == ""
    assert location_of(["rows", 2, "name"]) == "rows[2].name"


VALUES = st.none() | st.booleans() | st.floats() | st.text(max_size=10)
NESTED = st.recursive(VALUES, lambda inner: st.lists(inner, max_size=3), max_leaves=5)
NAMES = st.sampled_from(["unit", "days", "places", "name"]) | st.text(max_size=500)


@given(st.dictionaries(NAMES, NESTED | st.dictionaries(NAMES, NESTED, max_size=3), max_size=4))
def test_any_arguments_are_taken_or_refused_in_short(arguments: dict[str, Any]) -> None:
    try:
        taken, text = check_arguments(SCHEMA, arguments), ""
    except ToolArgumentsError as error:
        taken, text = arguments, str(error)
    assert taken == arguments
    assert len(text) < 400
