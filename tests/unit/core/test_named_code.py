"""Code by its name, and what is said when there is none."""

from __future__ import annotations

import json

import pytest

from lango.core.named_code import did_you_mean, is_code_name, named_code


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("package.module:attribute", True),
        ("module:Class.method", True),
        ("module", False),
        ("module:", False),
        ("what time is it: now", False),
        ("a..b:c", False),
    ],
)
def test_what_reads_like_a_name(text: str, expected: bool) -> None:
    assert is_code_name(text) is expected


def test_what_a_name_stands_for() -> None:
    assert named_code("json:dumps", ValueError) is json.dumps
    assert named_code("json:JSONDecoder.decode", ValueError) is json.JSONDecoder.decode
    assert named_code("json", ValueError, usual=("app", "loads")) is json.loads


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("json:dumsp", r"json has no dumsp\. Did you mean "),
        ("json", "has neither app nor root_agent: name it, as json:NAME"),
        ("no_such_module_anywhere:x", "there is no module no_such_module_anywhere"),
    ],
)
def test_what_there_is_not(name: str, expected: str) -> None:
    with pytest.raises(ValueError, match=expected):
        named_code(name, ValueError, usual=("app", "root_agent"))


def test_the_nearest_names() -> None:
    assert did_you_mean("fiels", ["files", "fetch"]) == " Did you mean files?"
    assert did_you_mean("zzz", ["files"]) == ""
