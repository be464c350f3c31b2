"""Differences are found by kind as well as value, and NaN is no difference."""

from __future__ import annotations

from math import nan
from typing import Any

import pytest

from lango.testing.same import differences


@pytest.mark.parametrize(
    ("expected", "actual", "found"),
    [
        (nan, nan, []),
        ({"a": [nan]}, {"a": [nan]}, []),
        (nan, 1.0, [".: nan became 1.0"]),
        (1, 1.0, [".: int 1 became float 1.0"]),
        ({"a": 1}, {"b": 1}, [".a: lost 1", ".b: appeared as 1"]),
        ([1], [1, 2], [": 1 items became 2"]),
    ],
)
def test_differences(expected: Any, actual: Any, found: list[str]) -> None:
    assert differences(expected, actual) == found
