"""Pages name the extras that their commands and their code need."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from lango.core.extras import PACKAGES, install
from lango.providers.registry import GATEWAYS
from tests.docs.pages import DOCS, ROOT, blocks
from tests.docs.test_blocks import EXAMPLES, name_of

FOR_DEVELOPERS: Final = {"dev", "docs"}
EXTRAS: Final = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
    "optional-dependencies"
]
IN_THE_IMAGE: Final = {"containers", "kubernetes"}  # which has every extra
FOLLOWED: Final = [
    ROOT / "README.md",
    DOCS / "tutorial.md",
    DOCS / "reference/commands.md",
    DOCS / "reference/configuration.md",
    *sorted(page for page in DOCS.glob("how-to/*.md") if page.stem not in IN_THE_IMAGE),
    *EXAMPLES,
]
SERVER: Final = re.compile(r"lango (?:serve|dev)\b|--probe-port\b|/openai/v1")
POSTGRES: Final = re.compile(r"postgresql://")
MCP: Final = re.compile(r"\bmcp(?:_servers|_toolset)?\b")


def _models(extra: str) -> re.Pattern[str]:
    """The names of models whose SDK an extra brings."""
    providers = "|".join(gateway.name for gateway in GATEWAYS if gateway.extra == extra)
    return re.compile(rf"(?<![\w/-])(?:{providers}):[\w/.-]")


MODELS: Final = {extra: _models(extra) for extra in ("anthropic", "openai")}
INLINE: Final = re.compile(r"`[^`\n]+`")


def code_of(page: Path) -> str:
    """What a page shows as code or as a command, in blocks and in its text."""
    shown = [block.text for block in blocks(page) if block.language not in ("", "text")]
    prose = re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    return "\n".join([*shown, *INLINE.findall(prose)])


def needed(page: Path) -> Iterator[str]:
    """The extras without which something on the page does not work."""
    code = code_of(page)
    patterns = {"server": SERVER, "postgres": POSTGRES, "mcp": MCP, **MODELS}
    return (extra for extra, pattern in patterns.items() if pattern.search(code))


def named(page: Path) -> set[str]:
    """The extras whose installation the page shows."""
    found = re.findall(r'pip install "lango-adk\[(.+?)\]"', page.read_text("utf-8"))
    return {extra for extras in found for extra in extras.split(",")}


@pytest.mark.parametrize("page", FOLLOWED, ids=name_of)
def test_a_page_names_the_extras_that_it_needs(page: Path) -> None:
    assert sorted(set(needed(page)) - named(page)) == []


def test_every_extra_is_listed() -> None:
    page = (DOCS / "index.md").read_text("utf-8")
    rows = dict(
        re.findall(r'^\| `(pip install "lango-adk\[\w+\]")` \| (.+) \|$', page, re.MULTILINE)
    )
    assert sorted(rows) == sorted(install(extra) for extra in EXTRAS.keys() - FOR_DEVELOPERS)


def test_the_packages_of_extras_are_those_of_the_distribution() -> None:
    # Distributions have other names than their packages, or extras; the SDK of MCP comes with ADK.
    names = {"mcp": "google-adk[mcp]", "nats": "nats-py", "redis": "redis[hiredis]"}
    names["prometheus_client"] = "prometheus-client"
    names |= {"opentelemetry.sdk": "opentelemetry-sdk"}
    names["opentelemetry.exporter.otlp.proto.http"] = "opentelemetry-exporter-otlp-proto-http"
    for extra, packages in PACKAGES.items():
        brought = [re.split(r"[><;]", wanted)[0] for wanted in EXTRAS[extra]]
        assert {names.get(package, package) for package in packages} <= set(brought)
