"""The examples of the plugins' page run, and the page names every plugin."""

import re
import sqlite3
import subprocess
import sys
from pathlib import Path

import lango

PAGE = Path(__file__).resolve().parents[3] / "docs/reference/plugins.md"


def test_the_example_does_what_the_page_says(tmp_path: Path) -> None:
    [code] = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    ran = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert "I asked: divide gave" in ran.stdout
    assert "The tool divide failed" in ran.stdout
    connection = sqlite3.connect(tmp_path / "shop.db")
    rows = connection.execute("select agent, outcome from model_calls").fetchall()
    connection.close()
    assert rows == [("root", "completed")] * 2


def test_every_plugin_has_its_heading() -> None:
    headings = set(re.findall(r"^## (\w+)$", PAGE.read_text(), re.MULTILINE))
    assert headings == {name for name in lango.__all__ if name.endswith("Plugin")}
