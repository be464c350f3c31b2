"""The page on tools: its code runs, and every option of the built-in tools is on it."""

import re
from pathlib import Path
from typing import Any

import pytest

from lango.tools.builtin.exec import ExecOptions
from lango.tools.builtin.fetch import FetchOptions
from lango.tools.builtin.files import FilesOptions
from lango.tools.builtin.time import TimeOptions
from lango.tools.function import FunctionTool
from lango.tools.options import Options
from lango.tools.registry import BUILTINS

PAGE = (Path(__file__).resolve().parents[3] / "docs/reference/tools.md").read_text()
OPTIONS: dict[str, type[Options]] = {
    "exec": ExecOptions,
    "fetch": FetchOptions,
    "files": FilesOptions,
    "time": TimeOptions,
}


def test_all_of_them_are_here() -> None:
    assert set(OPTIONS) == set(BUILTINS)


@pytest.mark.parametrize("name", BUILTINS)
def test_every_option_is_on_the_page(name: str) -> None:
    section = PAGE.partition(f"\n## builtin:{name}\n")[2].partition("\n## ")[0]
    listed = set(re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE))
    listed |= set(re.findall(r"Option: `(\w+)`", section))
    assert listed == set(OPTIONS[name].model_fields)


def test_the_code_runs() -> None:
    names: dict[str, Any] = {}
    for code in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
        exec(code, names)  # noqa: S102 - our own page
    assert names["import_orders"]("a.csv") == "300 orders"
    forecast = names["forecast"]
    assert isinstance(forecast, FunctionTool)
    assert forecast.parameters["properties"]["days"]["description"] == "How many days."
    assert forecast("Oslo", 1) == {"city": "Oslo", "days": ["sunny"]}
