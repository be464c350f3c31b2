"""Every command has its heading, and every heading its command."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer.main

from lango.cli.root import app

PAGE = Path(__file__).resolve().parents[3] / "docs/reference/commands.md"


def commands(command: Any, name: str) -> Iterator[str]:
    """The names of all commands below one."""
    below = getattr(command, "commands", None)
    if below is None:
        yield name
        return
    for word, inner in below.items():
        yield from commands(inner, f"{name} {word}")


def test_every_command_has_its_heading() -> None:
    there = sorted(commands(typer.main.get_command(app), "lango"))
    assert sorted(re.findall(r"^## (.+)$", PAGE.read_text(), re.MULTILINE)) == there
