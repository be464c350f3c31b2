"""The documentation site builds without a warning, and loads nothing from elsewhere."""

from __future__ import annotations

import html
import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import lango
from scripts import api_reference
from tests.docs.pages import DOCS, ROOT

# The parts a reader looks for, in the order of the tabs.
TABS = ["Home", "Tutorial", "How to", "Reference", "Explanation", "Project"]
LOADED = re.compile(r"<(?:script|img|iframe|source)[^>]+src=\"?(\S+?)[\" >]|url\((\S+?)\)")
STYLES = re.compile(r"<link[^>]+rel=\"?(?:stylesheet|preload|icon)[^>]*href=\"?(\S+?)[\" >]")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, as `make site` builds it: every warning is an error, broken links among them."""
    folder = tmp_path_factory.mktemp("site")
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    return folder


def test_every_page_is_there(site: Path) -> None:
    pages = {path.relative_to(DOCS).with_suffix("") for path in DOCS.rglob("*.md")}
    pages.add(Path(api_reference.PAGE).with_suffix(""))
    built = {path.relative_to(site).parent for path in site.rglob("index.html")}
    names = {page.parent if page.name in {"README", "index"} else page for page in pages}
    assert names == built


def test_the_python_api_is_written_from_the_docstrings(site: Path) -> None:
    page = site / Path(api_reference.PAGE).with_suffix("") / "index.html"
    text = html.unescape(re.sub(r"<[^>]+>", "", page.read_text("utf-8")))
    missing = [
        name
        for name in api_reference.homes()
        if inspect.isclass(value := getattr(lango, name)) and not _shown(value, text)
    ]
    assert missing == []


def _shown(value: type, text: str) -> bool:
    first = (inspect.getdoc(value) or "").partition("\n")[0]
    return _plain(first) in _plain(text)


def _plain(text: str) -> str:
    return " ".join(re.sub(r"[`*_]", "", text).split())


def test_the_tabs_are_in_a_reader_s_order(site: Path) -> None:
    home = (site / "index.html").read_text("utf-8")
    [tabs] = re.findall(r'<nav class="md-tabs".*?</nav>', home, re.DOTALL)
    assert re.findall(r"md-tabs__link\">\s*(.*?)\s*</a>", tabs, re.DOTALL) == TABS


def test_it_loads_nothing_from_elsewhere(site: Path) -> None:
    files = [*site.rglob("*.html"), *site.rglob("*.css")]
    found = [
        (path.name, target)
        for path in files
        for match in (
            *LOADED.finditer(path.read_text("utf-8")),
            *STYLES.finditer(path.read_text("utf-8")),
        )
        if (target := next(filter(None, match.groups()))).startswith(("http:", "https:", "//"))
    ]
    assert found == []
    assert len(files) > 30
