"""Docs cannot lie: the code runs, the links lead somewhere, every error has its heading."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import lango
from lango import errors
from scripts import api_reference

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
WRITTEN_BY_THE_SITE = ROOT / "docs" / api_reference.PAGE


def quick_start() -> str:
    """The Python of the README's first screen."""
    found = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert len(found) == 1
    return found[0]


def test_quick_start_survives_a_restart(tmp_path: Path) -> None:
    code = quick_start()
    assert len(code.splitlines()) == 12
    (tmp_path / "memory.py").write_text(code)

    def say(text: str) -> str:
        ran = subprocess.run(
            [sys.executable, "memory.py"],
            cwd=tmp_path,
            input=text,
            capture_output=True,
            text=True,
            check=True,
            timeout=120,
        )
        return ran.stdout

    assert "['one']" in say("one")
    assert "['one', 'two']" in say("two")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text())
    paths = [(page.parent / target).resolve() for target in targets if "://" not in target]
    assert [path for path in paths if not path.exists() and path != WRITTEN_BY_THE_SITE] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_test_that_a_page_names_exists(page: Path) -> None:
    named = re.findall(r"\b((?:tests|faults|bench)/[^\s`:]*\.py)(?:::(\w+))?", page.read_text())
    missing = [path for path, _ in named if not (ROOT / path).is_file()]
    assert missing == []
    assert [name for path, name in named if f"def {name}" not in (ROOT / path).read_text()] == []


def test_every_error_has_its_heading() -> None:
    page = (ROOT / "docs/reference/errors.md").read_text()
    headings = set(re.findall(r"^## (\w+)$", page, re.MULTILINE))
    kinds = {
        name
        for name, kind in vars(errors).items()
        if isinstance(kind, type) and issubclass(kind, BaseException) and name != "LangoError"
    }
    assert headings == kinds
    assert kinds <= set(lango.__all__)
