"""API keys: their text, their hash, their limits and scopes."""

import re
from dataclasses import replace
from hashlib import sha256

import pytest

from lango.core.keys import KeyLimits, KeyText, checked_scopes, holds_key
from lango.errors import InvalidKeyError


def test_a_key_reads_back() -> None:
    key = KeyText.new()
    assert re.fullmatch(r"lango_[0-9a-f]{16}_[\w-]{43}", key.text)
    assert KeyText.read(key.text) == key
    assert KeyText.new() != key


def test_a_key_does_not_show_its_secret() -> None:
    key = KeyText.new()
    assert key.secret not in f"{key} {key!r}"


def test_only_the_key_itself_fits_its_hash() -> None:
    key = KeyText.new()
    assert key.hash == sha256(key.secret.encode()).hexdigest()
    assert key.fits(key.hash)
    assert not replace(key, secret=KeyText.new().secret).fits(key.hash)


@pytest.mark.parametrize(
    "text",
    [
        *("", "lango_", "lango_0123456789abcdef_short", f"lango_0123456789ABCDEF_{'a' * 43}"),
        *(f"lango_0123456789abcdef_{'a' * 44}", f" lango_0123456789abcdef_{'a' * 43}"),
    ],
)
def test_what_is_no_key(text: str) -> None:
    assert KeyText.read(text) is None


def test_a_key_inside_a_text_is_seen() -> None:
    assert holds_key(f"/v1/agents?x={KeyText.new().text}&y=1")
    assert not holds_key("/v1/agents?x=lango_is_a_word")


def test_limits_as_json() -> None:
    limits = KeyLimits(requests=60, cost=2.5)
    assert limits.data() == {"requests": 60, "cost": 2.5}
    assert KeyLimits.of(limits.data()) == limits
    assert KeyLimits().data() is None
    assert KeyLimits.of(None) == KeyLimits()
    assert KeyLimits.of({"turns": 3, "of a newer lango": 1}) == KeyLimits(turns=3)


@pytest.mark.parametrize(
    "limits", [KeyLimits(requests=0), KeyLimits(turns=-1), KeyLimits(cost=float("nan"))]
)
def test_a_limit_that_lets_nothing_through(limits: KeyLimits) -> None:
    with pytest.raises(InvalidKeyError, match="must be above 0"):
        limits.checked()


def test_scopes() -> None:
    assert checked_scopes(["admin"]) == {"admin"}
    assert checked_scopes(["act_as"]) == {"chat", "act_as"}
    with pytest.raises(InvalidKeyError, match=r"no scope chatt; there are chat, act_as, admin"):
        checked_scopes(["chat", "chatt"])
    with pytest.raises(InvalidKeyError, match="needs a scope"):
        checked_scopes([])
