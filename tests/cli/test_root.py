"""`lango` itself: its version and its help."""

from __future__ import annotations

import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from tests.cli.running import run

ROOT = Path(__file__).resolve().parents[2]


def test_the_version_is_the_distribution_s(monkeypatch: pytest.MonkeyPatch) -> None:
    def installed(name: str) -> str:
        return f"1.2.3 of {name}"

    monkeypatch.setattr("importlib.metadata.version", installed)
    assert run("--version").out == "lango 1.2.3 of lango-adk\n"


def test_without_a_distribution_there_is_no_version(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr("importlib.metadata.version", missing)
    assert run("--version").out == "lango (not installed)\n"


def test_help_names_every_command() -> None:
    assert all(group in run("--help").out for group in ("db", "adk", "--version"))
    commands = ("upgrade", "check", "current", "import-adk")
    assert all(command in run("db", "--help").out for command in commands)
    assert "services" in run("adk", "--help").out
    assert run("adk", "-h").out == run("adk", "--help").out


def test_the_module_is_the_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "lango.cli", "db", "check", "--url", "mysql://h/d"],
        capture_output=True,
        cwd=ROOT,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.startswith("lango: mysql:// is not supported.")
    assert done.stderr.count("\n") == 1
