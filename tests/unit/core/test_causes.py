"""Causes of failures: what was raised and where, bounded and without secrets."""

from __future__ import annotations

import json

import pytest

from lango.core.causes import MAX_TEXT, Cause, cause_of
from lango.core.redaction import MASK, redacted


def raised(error: BaseException) -> BaseException:
    """The exception, after it was raised here."""
    try:
        raise error
    except BaseException as caught:  # noqa: BLE001 - of any kind
        return caught


def test_the_location_is_the_users_own_code_below_a_library() -> None:
    with pytest.raises(json.JSONDecodeError) as caught:
        json.loads("{")
    cause = cause_of(caught.value)
    assert cause.type == "JSONDecodeError"
    assert cause.place.startswith(f"{__file__}:")
    assert cause.place.endswith("in test_the_location_is_the_users_own_code_below_a_library")
    assert str(cause) == f"JSONDecodeError: {cause.message} ({cause.place})"


def test_without_code_of_the_user_it_is_the_innermost() -> None:
    with pytest.raises(json.JSONDecodeError) as caught:
        json.loads("{")
    error = caught.value
    assert error.__traceback__ is not None
    cause = cause_of(error.with_traceback(error.__traceback__.tb_next))
    assert "json/decoder.py:" in cause.place


def test_what_it_was_raised_from_is_named_and_looked_through() -> None:
    inner = raised(KeyError("customer"))
    outer = RuntimeError("Error in plugin")
    outer.__cause__ = inner
    cause = cause_of(outer)
    assert (cause.type, cause.message) == (
        "RuntimeError",
        "Error in plugin; caused by KeyError: 'customer'",
    )
    assert cause.place.endswith("in raised")


def test_a_group_is_its_first() -> None:
    group = raised(ExceptionGroup("two", [ExceptionGroup("one", [ValueError("a")]), KeyError()]))
    assert cause_of(group).type == "ValueError"


def test_a_chain_that_bites_its_tail_ends() -> None:
    first, second = ValueError("1"), ValueError("2")
    first.__cause__, second.__cause__ = second, first
    assert cause_of(first).message == "1; caused by ValueError: 2"


class UnreadableError(Exception):
    """One whose text cannot be had."""

    def __str__(self) -> str:
        raise RuntimeError


def test_odd_texts() -> None:
    assert cause_of(UnreadableError()).message == "(its message cannot be read)"
    assert cause_of(ValueError()) == Cause("ValueError", "")
    assert str(cause_of(ValueError())) == "ValueError"
    assert cause_of(ValueError("a\x00b\ud800")).message == "a\ufffdb\ufffd"
    assert len(cause_of(ValueError("x" * 1_000_000)).message) == MAX_TEXT


SECRET = "correct-horse-battery"


@pytest.mark.parametrize(
    "text",
    [
        f"postgresql://ann:{SECRET}@db/shop failed",
        f"Authorization: Bearer {SECRET}",
        f"sent bearer {SECRET}, refused",
        f"{{'api_key': '{SECRET}'}}",
        f"https://api.example.com/?token={SECRET}&x=1",
        f"password={SECRET}",
        f"Incorrect key sk-proj-{SECRET}",
    ],
)
def test_secrets_are_masked(text: str) -> None:
    result = redacted(text, {})
    assert SECRET not in result
    assert MASK in result


def test_values_of_sensitive_variables_are_masked() -> None:
    variables = {"SHOP_PASSWORD": SECRET, "HOME": "/home/ann", "MY_KEY": "short"}
    assert redacted(f"{SECRET} in /home/ann is short", variables) == f"{MASK} in /home/ann is short"


@pytest.mark.parametrize("text", ["No API key was provided.", "KeyError: 'token'", "key: order_id"])
def test_the_rest_stays_readable(text: str) -> None:
    assert redacted(text, {}) == text
