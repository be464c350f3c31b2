"""The files of the console: short, of our own, and served so that nothing else can run in them."""

from __future__ import annotations

import re
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI

from lango.console import STATIC
from lango.server.http.problems import add_problems
from lango.server.routes.console import add_console
from tests.house.test_house_rules import MAX_FILE_LINES

SCRIPTS = sorted((STATIC / "scripts").rglob("*.js"))
STYLES = sorted((STATIC / "styles").glob("*.css"))
PAGE = (STATIC / "index.html").read_text()
MARKUP = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|createContextualFragment|DOMParser|srcdoc"
    r"|document\.write|\beval\(|new Function|setAttribute\(\"(style|on)"
)


def name_of(path: Path) -> str:
    return path.name


@pytest.fixture
def client() -> httpx.AsyncClient:
    app = FastAPI()
    add_console(app)
    add_problems(app)
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost")


@pytest.mark.parametrize("path", [*SCRIPTS, *STYLES], ids=name_of)
def test_files_are_short_and_make_no_markup_of_text(path: Path) -> None:
    text = path.read_text()
    assert len(text.splitlines()) <= MAX_FILE_LINES
    assert MARKUP.findall(text) == []
    assert text.startswith("/*")  # says what it is for


@pytest.mark.parametrize("path", SCRIPTS, ids=name_of)
def test_scripts_import_only_each_other(path: Path) -> None:
    imported = re.findall(r"^import .* from \"(.*)\";$", path.read_text(), re.MULTILINE)
    assert all((path.parent / each).resolve() in SCRIPTS for each in imported)


def test_nothing_comes_from_elsewhere() -> None:
    for path in STATIC.rglob("*.*"):
        addresses = set(re.findall(r"https?://[^\s\"'`)\\]+", path.read_text()))
        assert addresses <= {"http://www.w3.org/2000/svg"}, path.name


def test_the_page_names_every_file() -> None:
    """Each script beforehand, so that a browser need not find them one behind the other."""
    named = set(re.findall(r"(?:href|src)=\"([^\"]+)\"", PAGE))
    files = {str(path.relative_to(STATIC)) for path in STATIC.rglob("*.*")}
    assert named == files - {"index.html"}
    assert "style=" not in PAGE
    assert re.findall(r"<script(?! type=\"module\" src=)", PAGE) == []


async def test_the_policy_lets_nothing_else_run(client: httpx.AsyncClient) -> None:
    for path in ("/console/", "/console/scripts/main.js", "/console/icon.svg"):
        answer = await client.get(path)
        assert answer.status_code == 200
        policy = dict(
            each.split(" ", 1) for each in answer.headers["content-security-policy"].split("; ")
        )
        assert policy["default-src"] == "'none'"
        assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
        assert policy["frame-ancestors"] == "'none'"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-cache"


async def test_a_browser_asks_again_and_hears_that_nothing_changed(
    client: httpx.AsyncClient,
) -> None:
    first = await client.get("/console/scripts/main.js")
    assert first.headers["content-type"].startswith("text/javascript")
    again = await client.get(
        "/console/scripts/main.js", headers={"If-None-Match": first.headers["etag"]}
    )
    assert (again.status_code, again.content) == (304, b"")


async def test_the_folder_is_where_its_name_leads(client: httpx.AsyncClient) -> None:
    answer = await client.get("/console")
    assert (answer.status_code, answer.headers["location"]) == (308, "console/")


async def test_a_bare_address_leads_to_the_console(client: httpx.AsyncClient) -> None:
    answer = await client.get("/")
    assert (answer.status_code, answer.headers["location"]) == (307, "console/")


@pytest.mark.parametrize(
    "path",
    [
        "/console/nothing",
        "/console/scripts",
        "/console/../__init__.py",
        "/console/%2e%2e/__init__.py",
    ],
)
async def test_there_is_nothing_else(client: httpx.AsyncClient, path: str) -> None:
    answer = await client.get(path)
    assert answer.status_code == 404
    assert "import" not in answer.text
