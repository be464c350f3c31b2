"""The page of the Python API has every name of the package root, and each has a docstring."""

from __future__ import annotations

import inspect
import re

import lango
from scripts.api_reference import homes, page


def test_every_exported_name_is_on_the_page_once() -> None:
    shown = re.findall(r"^::: \S+\.(\w+)$", page(), re.MULTILINE)
    assert sorted(shown) == sorted(lango.__all__)


def test_every_function_and_class_says_what_it_does() -> None:
    values = [getattr(lango, name) for name in homes()]
    described = [each for each in values if inspect.isclass(each) or inspect.isfunction(each)]
    assert [each for each in described if not inspect.getdoc(each)] == []
    assert len(described) > 50
