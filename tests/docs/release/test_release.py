"""A release: its notes, the links of its README, and the versions that the docs name."""

from __future__ import annotations

import re
import tomllib
from typing import Any

from scripts.release import absolute, notes, warnings
from tests.docs.pages import DOCS, ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
CHANGELOG = """# Changelog

## [Unreleased]

- A new one.

## [1.0.0] - 2026-01-02

- The first.
"""


def test_the_notes_are_those_of_the_version() -> None:
    assert notes(CHANGELOG, "1.0.0") == ("1.0.0", "- The first.\n")
    assert notes(CHANGELOG, "1.1.0") == ("Unreleased", "- A new one.\n")
    heading, text = notes((ROOT / "CHANGELOG.md").read_text("utf-8"), "0.0.0")
    assert heading == "Unreleased"
    assert text.startswith("### ")


def test_on_a_package_index_every_link_of_the_readme_is_an_address() -> None:
    readme = absolute((ROOT / "README.md").read_text("utf-8"), "https://example.org/lango", "v1")
    targets = re.findall(r"\]\(([^)]+)\)", readme)
    assert [target for target in targets if not target.startswith(("https://", "#"))] == []
    assert "![" in readme
    assert "(https://example.org/lango/raw/v1/docs/images/recording.svg)" in readme
    assert "(https://example.org/lango/blob/v1/docs/tutorial.md)" in readme


def test_what_is_missing_is_named() -> None:
    ready: dict[str, Any] = {
        "project": {"version": "1.0.0", "urls": {"Repository": "https://example.org/lango"}}
    }
    assert warnings(ready, "1.0.0") == []
    bare: dict[str, Any] = {"project": {"version": "1.0.0", "urls": {}}}
    assert [words.split()[0] for words in warnings(bare, "Unreleased")] == [
        "pyproject.toml",
        "CHANGELOG.md",
    ]


def test_the_versions_on_the_pages_are_those_of_the_package() -> None:
    [adk] = [one for one in PROJECT["project"]["dependencies"] if one.startswith("google-adk")]
    pythons = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["project"]["classifiers"]))
    readme, page = (
        (ROOT / "README.md").read_text("utf-8"),
        (DOCS / "versions.md").read_text("utf-8"),
    )
    assert f"`{adk.removeprefix('google-adk')}`" in readme
    assert f"`{adk.removeprefix('google-adk')}`" in page
    assert f"Python {pythons[0]} to {pythons[-1]}" in readme
    assert ", ".join(pythons) in page
