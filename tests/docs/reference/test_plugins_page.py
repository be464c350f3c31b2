"""The examples of the plugins' page run, and the page names every plugin."""

import re
import sqlite3
from pathlib import Path

import lango
from tests.docs.pages import check_example

PAGE = Path(__file__).resolve().parents[3] / "docs/reference/plugins.md"


def test_the_example_does_what_the_page_says(tmp_path: Path) -> None:
    [code] = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    check_example(code, tmp_path, ["I asked: divide gave", "The tool divide failed"])
    connection = sqlite3.connect(tmp_path / "shop.db")
    rows = connection.execute("select agent, outcome from model_calls").fetchall()
    connection.close()
    assert rows == [("root", "completed")] * 2


def test_every_plugin_has_its_heading() -> None:
    headings = set(re.findall(r"^## (\w+)$", PAGE.read_text(), re.MULTILINE))
    assert headings == {name for name in lango.__all__ if name.endswith("Plugin")}
