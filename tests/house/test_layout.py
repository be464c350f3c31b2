"""The layout of the package: folders that a person can survey, and one meaning for each name."""

import ast
from collections import defaultdict
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "lango"
FOLDERS = sorted({path.parent for path in PACKAGE.rglob("*.py")})

MOST_MODULES = 16

# Parallel files have parallel names; ADK's callers expect errors of ADK's own types.
SHARED_NAMES = {
    "StreamDecoder": {f"providers/{name}.py" for name in ("anthropic", "gemini")}
    | {f"providers/openai_{name}.py" for name in ("chat", "responses")},
    "SessionExistsError": {"errors.py", "adk/errors.py"},
    "SessionNotFoundError": {"errors.py", "adk/errors.py"},
}


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: str(path.relative_to(PACKAGE.parent)))
def test_a_folder_has_few_modules(folder: Path) -> None:
    modules = [path.name for path in folder.glob("*.py") if path.stem != "__init__"]
    assert len(modules) <= MOST_MODULES, sorted(modules)


def test_a_public_class_name_has_one_meaning() -> None:
    homes: defaultdict[str, set[str]] = defaultdict(set)
    for path in PACKAGE.rglob("*.py"):
        for node in ast.parse(path.read_text("utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name].add(path.relative_to(PACKAGE).as_posix())
    assert {name: files for name, files in homes.items() if len(files) > 1} == SHARED_NAMES
