"""The house rules that neither ruff nor import-linter can hold."""

import ast
import importlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import lango
from scripts.check import PARTS

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "lango"
MAX_FILE_LINES = 600
MAX_FUNCTION_LINES = 60
HEAVY = (
    *("alembic", "anthropic", "asyncpg", "google.adk", "google.genai", "openai", "pydantic"),
    *("sqlalchemy", "typer"),
)

Function = ast.FunctionDef | ast.AsyncFunctionDef
Asynchronous = ast.AsyncFunctionDef | ast.Await | ast.AsyncFor | ast.AsyncWith


def sources(*folders: str) -> list[Path]:
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


EVERYWHERE = sources("lango", "tests", "bench", "faults", "scripts")
SHIPPED = sources("lango")
PURE = [*sources("lango/core"), PACKAGE / "errors.py"]


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=name_of(path))


def functions_of(path: Path) -> Iterator[Function]:
    return (node for node in ast.walk(tree_of(path)) if isinstance(node, Function))


def imported_roots(path: Path) -> set[str]:
    """The top-level names a file imports; a relative import counts as our own."""
    roots: set[str] = set()
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            roots.update(alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            roots.add("lango" if node.level else (node.module or "").partition(".")[0])
    return roots


def test_the_rules_see_the_code() -> None:
    assert len(SHIPPED) > 10
    assert len(PURE) > 5


def test_files_are_short() -> None:
    lengths = {name_of(path): len(path.read_text("utf-8").splitlines()) for path in EVERYWHERE}
    assert {name: n for name, n in lengths.items() if n > MAX_FILE_LINES} == {}


def test_functions_are_short() -> None:
    too_long = {
        f"{name_of(path)}:{function.lineno} {function.name}": length
        for path in SHIPPED
        for function in functions_of(path)
        if (length := (function.end_lineno or 0) - function.lineno + 1) > MAX_FUNCTION_LINES
    }
    assert too_long == {}


def test_no_file_is_called_utils() -> None:
    assert [name_of(path) for path in EVERYWHERE if path.stem in {"util", "utils"}] == []


@pytest.mark.parametrize("path", PURE, ids=name_of)
def test_core_never_awaits(path: Path) -> None:
    assert [n.lineno for n in ast.walk(tree_of(path)) if isinstance(n, Asynchronous)] == []


@pytest.mark.parametrize("path", PURE, ids=name_of)
def test_core_imports_the_standard_library_only(path: Path) -> None:
    assert imported_roots(path) - sys.stdlib_module_names - {"lango"} == set()


def test_public_modules_have_a_docstring() -> None:
    public = [path for path in SHIPPED if path.name == "__init__.py" or path.stem[0] != "_"]
    assert [name_of(path) for path in public if ast.get_docstring(tree_of(path)) is None] == []


def test_only_the_test_kit_arms_failpoints() -> None:
    """Production code passes failpoints by calling `failpoint`, and imports nothing else there."""
    offenders = [
        f"{name_of(path)}:{node.lineno}"
        for path in SHIPPED
        if "testing" not in path.relative_to(PACKAGE).parts
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.ImportFrom)
        and node.module == "lango.core.failpoints"
        and [alias.name for alias in node.names] != ["failpoint"]
    ]
    assert offenders == []


def test_the_gate_runs_every_test() -> None:
    run = {word for commands in PARTS.values() for command in commands for word in command}
    files = [path.relative_to(ROOT) for path in (ROOT / "tests").rglob("test_*.py")]
    assert [file for file in files if run.isdisjoint(map(str, file.parents))] == []


def test_the_root_lists_its_names_in_order() -> None:
    assert list(lango.__all__) == sorted(set(lango.__all__))


def test_every_name_of_the_root_is_there() -> None:
    module = importlib.import_module("lango")
    for name in lango.__all__:
        assert getattr(module, name) is not None
    assert set(lango.__all__) <= set(dir(module))


def test_importing_the_root_loads_no_vendor() -> None:
    code = "import json, sys, lango; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    loaded = set(json.loads(done.stdout))
    assert sorted(loaded.intersection(HEAVY)) == []
