"""docs/spec and the scenario tests say the same."""

import ast
import re
from collections import Counter
from pathlib import Path

import pytest

from scripts.spec import TOTAL

ROOT = Path(__file__).resolve().parents[2]
HEADING = re.compile(r"^### (.+)$", re.MULTILINE)
TEST = re.compile(r"^Test: (?:`([^`]+)`|(not built yet))$", re.MULTILINE)
NOT_BUILT = "not built yet"


def documented() -> list[tuple[str, list[str]]]:
    """Every scenario of docs/spec with what its `Test:` lines say."""
    found: list[tuple[str, list[str]]] = []
    for page in sorted((ROOT / "docs/spec").rglob("*.md")):
        _, *pieces = HEADING.split(page.read_text(encoding="utf-8"))
        for name, body in zip(pieces[::2], pieces[1::2], strict=True):
            found.append((name, [test or absent for test, absent in TEST.findall(body)]))
    return found


def marked() -> list[tuple[str, str]]:
    """Every test under tests/spec that is marked with a scenario, as (scenario, path::name)."""
    found: list[tuple[str, str]] = []
    for path in sorted((ROOT / "tests/spec").rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                test_id = f"{path.relative_to(ROOT)}::{node.name}"
                found += [(name, test_id) for name in map(scenario_of, node.decorator_list) if name]
    return found


def scenario_of(decorator: ast.expr) -> str | None:
    """The name in `@pytest.mark.scenario("…")`."""
    if not isinstance(decorator, ast.Call) or ast.unparse(decorator.func) != "pytest.mark.scenario":
        return None
    (name,) = decorator.args
    return str(ast.literal_eval(name))


def name_of_test(scenario: str) -> str:
    """`FunctionCall with original ID` → `test_function_call_with_original_id`."""
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", scenario)
    return "test_" + re.sub(r"[^a-z0-9]+", "_", words.lower())


DOCUMENTED = documented()
BUILT = {name: tests[0] for name, tests in DOCUMENTED if tests and tests[0] != NOT_BUILT}


def test_there_are_as_many_scenarios_as_we_count() -> None:
    assert len(DOCUMENTED) == TOTAL


def test_scenario_names_are_unique() -> None:
    names = Counter(name for name, _ in DOCUMENTED)
    assert [name for name, count in names.items() if count > 1] == []


def test_every_scenario_names_one_test_or_none() -> None:
    assert {name: tests for name, tests in DOCUMENTED if len(tests) != 1} == {}


def test_every_scenario_says_what_it_promises() -> None:
    pages = "\n".join(p.read_text("utf-8") for p in (ROOT / "docs/spec").rglob("*.md"))
    bodies = TEST.sub("", pages)
    assert re.findall(r"^(### .+)\n+(?=#|\Z)", bodies, re.MULTILINE) == []


def test_a_marked_scenario_has_one_test() -> None:
    counts = Counter(name for name, _ in marked())
    assert [name for name, count in counts.items() if count > 1] == []


def test_the_list_and_the_tests_agree() -> None:
    assert dict(marked()) == BUILT


@pytest.mark.parametrize(("scenario", "test"), BUILT.items(), ids=BUILT)
def test_a_test_bears_the_name_of_its_scenario(scenario: str, test: str) -> None:
    path, _, name = test.partition("::")
    assert (ROOT / path).is_file()
    assert name == name_of_test(scenario)
