"""Text and JSON made fit for any database."""

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lango.core.values import (
    MAX_DEPTH,
    TOO_DEEP,
    json_object,
    json_text,
    json_value,
    storable_json,
    storable_text,
)
from lango.testing.same import differences
from lango.testing.values import (
    Colour,
    Level,
    Opaque,
    ToolReply,
    any_values,
    nested,
    plain_json,
    texts,
)

KEYS_AS_TEXT = {"1": "int", "null": "null", "false": "no", "2.5": "float"}


def depth_of(value: Any) -> int:
    """Levels of lists and objects."""
    if isinstance(value, dict):
        return 1 + max(map(depth_of, value.values()), default=0)  # pyright: ignore[reportUnknownArgumentType, reportUnknownMemberType]
    if isinstance(value, list):
        return 1 + max(map(depth_of, value), default=0)  # pyright: ignore[reportUnknownArgumentType]
    return 0


@given(texts())
def test_storable_text_is_what_every_database_keeps(text: str) -> None:
    stored = storable_text(text)
    assert "\x00" not in stored
    assert stored.encode().decode() == stored
    assert len(stored) == len(text)
    assert storable_text(stored) == stored


@pytest.mark.parametrize(
    ("text", "stored"),
    [
        ("plain", "plain"),
        ("\x00", "\ufffd"),
        ("a\x00b\x00", "a\ufffdb\ufffd"),
        ("\ud800é", "\ufffdé"),
        ("\ud83d\ude00", "\ufffd\ufffd"),  # two halves are not a whole
        ("😀", "😀"),
        ("e\u0301 \u202e\u2028\ufeff\uffff", "e\u0301 \u202e\u2028\ufeff\uffff"),
        ("\x01\x1b\x7f\x85\r\n", "\x01\x1b\x7f\x85\r\n"),
        ("\\u0000", "\\u0000"),
    ],
)
def test_only_what_no_database_keeps_is_replaced(text: str, stored: str) -> None:
    assert storable_text(text) == stored


@given(any_values())
def test_anything_becomes_json(value: Any) -> None:
    stored = storable_json(value)
    text = json_text(stored)
    assert text == json.dumps(stored, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    assert "\x00" not in text
    assert text.encode().decode() == text
    assert depth_of(stored) <= MAX_DEPTH
    assert differences(stored, json_value(text)) == []


@given(any_values())
def test_storable_json_is_idempotent(value: Any) -> None:
    once = storable_json(value)
    assert storable_json(once) is once


@given(plain_json())
def test_storable_values_are_not_copied(value: Any) -> None:
    assert storable_json(value) is value


@given(any_values())
def test_the_given_value_is_left_as_it_was(value: Any) -> None:
    before = repr(value)
    storable_json(value)
    assert repr(value) == before


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        (math.nan, None),
        (math.inf, None),
        ([1.5, -math.inf], [1.5, None]),
        (b"\x00\xff", "AP8="),
        ((1, (2,)), [1, [2]]),
        ({3, 1, 2}, [1, 2, 3]),
        ({1: "int", None: "null", False: "no", 2.5: "float"}, KEYS_AS_TEXT),
        (Colour.RED, "red"),
        (Level.HIGH, 3),
        (ToolReply(), {"text": "ok"}),
        (Opaque(), "<opaque>"),
        ({"a\x00": "b\x00"}, {"a\ufffd": "b\ufffd"}),
    ],
)
def test_values_json_has_no_word_for(value: Any, stored: Any) -> None:
    assert differences(stored, storable_json(value)) == []


@pytest.mark.parametrize("number", [10**4299, 10**5_000, -(10**5_000)], ids=["4300", "5001", "-"])
def test_a_number_of_any_length_can_be_stored(number: int) -> None:
    """Python refuses to write or read an integer of more than 4,300 digits."""
    stored = storable_json({"number": number})
    assert differences(stored, json_value(json_text(stored))) == []


def test_of_two_keys_that_fall_together_the_later_wins() -> None:
    assert storable_json({1: "number", "1": "text"}) == {"1": "text"}
    assert storable_json({"a\x00": 1, "a\ufffd": 2}) == {"a\ufffd": 2}


@pytest.mark.parametrize("depth", [1, 63, 64])
def test_nesting_within_the_limit_is_kept(depth: int) -> None:
    value = nested(depth)
    assert storable_json(value) is value


@pytest.mark.parametrize("depth", [65, 300, 100_000])
def test_deeper_nesting_is_cut(depth: int) -> None:
    stored = storable_json(nested(depth))
    assert depth_of(stored) == MAX_DEPTH
    assert json_text(stored).count(TOO_DEEP) == 1


def test_a_value_that_holds_itself_is_cut_too() -> None:
    value: dict[str, Any] = {}
    value |= {"self": value, "again": value}
    assert depth_of(storable_json(value)) <= MAX_DEPTH


class Hostile:
    """Raises whatever is asked of it."""

    def __str__(self) -> str:
        raise RuntimeError("no text")

    def model_dump(self, **_: Any) -> Any:
        raise RuntimeError("no data")


class Endless:
    """Says of itself that it is another like it."""

    def model_dump(self, **_: Any) -> "Endless":
        return Endless()


@pytest.mark.parametrize("value", [Hostile(), Endless(), [Hostile()], {"k": Endless()}])
def test_a_foreign_object_never_makes_a_result_unstorable(value: Any) -> None:
    assert json_text(storable_json(value))


def test_json_text_is_compact_and_readable() -> None:
    assert json_text({"a": [1, None, "é 天気 😀"]}) == '{"a":[1,null,"é 天気 😀"]}'
    with pytest.raises(ValueError, match="JSON compliant"):
        json_text(math.nan)


@given(st.dictionaries(texts().map(storable_text), plain_json(), max_size=3))
def test_an_object_comes_back_as_it_was(value: dict[str, Any]) -> None:
    assert differences(value, json_object(json_text(value))) == []


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"result":"file.txt"}', {"result": "file.txt"}),
        ("{}", {}),
        ("[1, 2]", {"result": [1, 2]}),
        ('"quoted"', {"result": "quoted"}),
        ("17", {"result": 17}),
        ("null", {"result": None}),
        ("plain text", {"result": "plain text"}),
        ('{"cut": ', {"result": '{"cut": '}),
        ("", {"result": ""}),
        ("[" * 100_000, {"result": "[" * 100_000}),
        ("1" * 5_000, {"result": "1" * 5_000}),
    ],
    ids=range(11),
)
def test_what_is_no_object_becomes_a_result(text: str, value: dict[str, Any]) -> None:
    assert json_object(text) == value
