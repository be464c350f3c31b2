"""No block of any page is only for show: it is run, or held against what it speaks of."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any, Final

import pytest
import sqlalchemy as sa
import yaml
from sqlalchemy.ext.asyncio import create_async_engine

from lango.config.load import load
from lango.config.settings import Settings
from lango.store.db.engines import store_url
from tests.docs.command_lines import lango_lines, parse
from tests.docs.how_to.test_followed_pages import PAGES as FOLLOWED
from tests.docs.pages import DOCS, ROOT, blocks

EXAMPLES: Final = sorted((ROOT / "examples").rglob("*.md"))
PAGES: Final = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted(DOCS.rglob("*.md")),
    *EXAMPLES,
]
LANGUAGES: Final = {
    *("", "text"),  # what is printed
    *("bash", "sh", "diff", "dockerfile", "ini", "json", "nginx", "python", "sql", "yaml"),
}
RUN_BY: Final = {
    **{f"docs/how-to/{page}.md": "how_to/test_followed_pages.py" for page in FOLLOWED},
    "README.md": "test_docs.py",
    "docs/explanation/durability.md": "test_durability_page.py",
    "docs/how-to/fastapi.md": "how_to/test_fastapi_page.py",
    "docs/how-to/mcp.md": "test_blocks.py",
    "docs/how-to/models.md": "how_to/test_models_pages.py",
    "docs/how-to/openai-clients.md": "how_to/test_openai_page.py",
    "docs/how-to/openapi-tools.md": "how_to/test_openapi_tools_page.py",
    "docs/how-to/testing-models.md": "how_to/test_testing_page.py",
    "docs/how-to/tracing.md": "how_to/test_tracing_page.py",
    "docs/reference/agents.md": "reference/test_agents_page.py",
    "docs/reference/plugins.md": "reference/test_plugins_page.py",
    "docs/reference/tools.md": "reference/test_tools_page.py",
    "docs/reference/turns.md": "reference/test_turns_page.py",
}
FOR_ADMINISTRATORS: Final = re.compile(r"(create|alter) (role|database)\b")


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def pages_with(*languages: str) -> list[Any]:
    return [pytest.param(page, id=name_of(page)) for page in PAGES if blocks(page, *languages)]


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_block_says_what_it_is(page: Path) -> None:
    assert {block.language for block in blocks(page)} <= LANGUAGES


def test_every_page_with_python_has_a_test_that_runs_it() -> None:
    assert sorted(RUN_BY) == sorted(name_of(page) for page in PAGES if blocks(page, "python"))
    for page, test in RUN_BY.items():
        assert Path(page).stem in (ROOT / "tests/docs" / test).read_text()


def test_the_toolsets_of_the_page_can_be_made() -> None:
    [shown] = blocks(DOCS / "how-to/mcp.md", "python")
    names: dict[str, Any] = {}
    exec(shown.text, names)  # noqa: S102 - our own page
    assert len(names["agent"].tools) == 2


@pytest.mark.parametrize("page", pages_with("bash", "sh"))
def test_commands_are_such(page: Path) -> None:
    script = "".join(block.text for block in blocks(page, "bash", "sh"))
    for arguments in lango_lines(script):
        parse(arguments)
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"^make ([a-z-]+)", script, re.MULTILINE)) <= targets
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for extras in re.findall(r"lango-adk\[(.+?)\]", script):
        assert set(extras.split(",")) <= set(project["optional-dependencies"])


@pytest.mark.parametrize("page", pages_with("json"))
def test_json_can_be_read(page: Path) -> None:
    for block in blocks(page, "json"):
        assert json.loads(block.text)


@pytest.mark.parametrize("page", pages_with("yaml"))
def test_settings_are_such(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for block in blocks(page, "yaml"):
        text = yaml.safe_load(block.text)
        if not text.keys() <= Settings.model_fields.keys():  # a part of an agent
            text = {"apps": {"shown": {"agent": {"model": "scripted:demo", **text}}}}
        for name in re.findall(r"\$\{(\w+)\}", block.text):
            monkeypatch.setenv(name, "sqlite:///given.db")
        path = tmp_path / "lango.yaml"
        path.write_text(yaml.safe_dump(text))
        load(path)


@pytest.mark.parametrize("page", pages_with("sql"))
async def test_queries_can_be_asked(page: Path, postgres_url: str) -> None:
    script = "".join(block.text for block in blocks(page, "sql"))
    statements = [each.strip() for each in re.sub(r"--.*", "", script).split(";")]
    engine = create_async_engine(store_url(postgres_url))
    try:
        async with engine.connect() as connection:
            for statement in filter(None, statements):
                if not FOR_ADMINISTRATORS.match(statement):
                    await connection.execute(sa.text(statement.replace(":", "\\:")))
    finally:
        await engine.dispose()
