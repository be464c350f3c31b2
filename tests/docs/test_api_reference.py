"""The page of the Python API has every name of the package root, and its docstring."""

from __future__ import annotations

import inspect
import re

import pytest

import lango
from scripts.api_reference import homes, page


@pytest.fixture(scope="module")
def written() -> str:
    return page()


def test_every_exported_name_is_on_the_page(written: str) -> None:
    headings = set(re.findall(r"^## (\w+)$", written, re.MULTILINE)) - {"Errors"}
    errors = set(re.findall(r"^\| `(\w+)` \|", written, re.MULTILINE))
    assert headings | errors == set(lango.__all__)
    assert headings.isdisjoint(errors)


def test_every_function_and_class_says_what_it_does(written: str) -> None:
    for name, module in homes().items():
        value = getattr(lango, name)
        if (inspect.isclass(value) or inspect.isfunction(value)) and module != "lango.errors":
            first = (inspect.getdoc(value) or "").partition("\n")[0]
            assert first, name
            assert first in written.partition(f"## {name}\n")[2].partition("\n## ")[0]
