"""What a command loads: imports are most of its start, so it does without all it does not need."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.cli.running import run

ROOT = Path(__file__).resolve().parents[2]
REPORT = """
import atexit, gc, json, sys

def report():
    full = gc.get_stats()[-1]["collections"]
    print(json.dumps([sorted(sys.modules), full, gc.get_freeze_count()]), file=sys.stderr)

atexit.register(report)  # before main: exit handlers run in reverse order
from lango.cli import main
main()
"""
HELP_NEEDS_NO = {
    "alembic",
    "asyncio",
    "asyncpg",
    "google.adk",
    "google.genai",
    "importlib.metadata",
    "lango.config.settings",
    "pydantic",
    "sqlalchemy",
}
RUN_NEEDS_NO = {
    "alembic",
    "anthropic",
    "asyncpg",
    "genai_prices",
    "google.adk.artifacts.in_memory_artifact_service",
    "google.adk.cli",
    "lango.adk.apps.preload",
    "lango.adk.mcp.toolset",
    "lango.server.app",
    "markdown_it",
    "mcp",
    "nats",
    "openai",
    "redis",
    "temporalio",
    "uvicorn",
}
"""With a database that exists, and a scripted model."""


@dataclass(frozen=True, slots=True)
class Process:
    """A command's process as it was at its exit."""

    modules: frozenset[str]
    full_collections: int
    frozen_objects: int


def process_of(*arguments: str, folder: Path = ROOT) -> Process:
    done = subprocess.run(
        [sys.executable, "-c", REPORT, *arguments],
        capture_output=True,
        check=True,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        text=True,
    )
    modules, collections, frozen = json.loads(done.stderr.splitlines()[-1])
    return Process(frozenset(modules), collections, frozen)


def test_help_loads_no_vendor_but_the_terminal_s() -> None:
    ended = process_of("--help")
    assert "lango.cli.commands.turns" in ended.modules
    assert sorted(ended.modules & HELP_NEEDS_NO) == []


def test_a_run_loads_only_its_own_parts(tmp_path: Path) -> None:
    assert run("init", str(tmp_path)).code == 0
    assert run("db", "upgrade", "--url", f"sqlite:///{tmp_path / 'lango.db'}").code == 0
    ended = process_of("run", "hello", folder=tmp_path)
    assert {"google.adk.runners", "lango.store.turns.claim"} <= ended.modules
    assert sorted(ended.modules & RUN_NEEDS_NO) == []
    assert ended.full_collections == 0


def test_the_interpreter_exits_without_a_walk_over_all_modules() -> None:
    assert process_of("--version").frozen_objects > 10_000
