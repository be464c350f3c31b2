"""Mutations are of one line, are Python, and leave alone what no test could notice."""

import ast
import json
from pathlib import Path

import pytest

from faults.covering_tests import CoveringTests
from faults.mutations import (
    CHECKS,
    Mutation,
    Verdict,
    done_before,
    drawn,
    first_failure,
    mutations_of,
    tried,
)
from faults.results import ROOT


@pytest.mark.parametrize(
    ("before", "after", "kind"),
    [
        ("if a:\n    b = 1", "if not (a):", "negated condition"),
        ("while a:\n    b = c", "while not (a):", "negated condition"),
        ("a = b < c", "a = b <= c", "other comparison"),
        ("a = b is not None", "a = b is None", "other comparison"),
        ("a = b in c", "a = b not in c", "other comparison"),
        ("a = b and c", "a = ((b) or (c))", "and for or"),
        ("a = 5", "a = 6", "off by one"),
        ("a = True", "a = False", "other truth"),
        ("f(a)", "pass", "statement dropped"),
        ("a.b = c", "pass", "statement dropped"),
        ("a += b", "pass", "statement dropped"),
        ("raise A", "pass", "statement dropped"),
        ("async def f():\n    await g()", "    pass", "awaited call dropped"),
        ("def f():\n    return g", "    return None", "returned nothing"),
        ("def f(a=1):\n    x = y", "def f(a=2):", "off by one"),
    ],
)
def test_a_line_is_broken(before: str, after: str, kind: str) -> None:
    found = {(each.kind, each.after) for each in mutations_of("a.py", before)}
    assert (kind, after) in found


@pytest.mark.parametrize(
    "source",
    [
        '"""Text."""',
        'def f():\n    """Text with 1."""\n    x = y',
        'logger.info("1", a)',
        '_log.warning("b")',
        "def f(a: Literal[1]) -> Literal[2]:\n    x = y",
        "a: Literal[1]",
        "if TYPE_CHECKING:\n    import a",
        "@f(1)\ndef g():\n    x = y",
        "@f(slots=True)\nclass A(b=1):\n    x = y",
        "f(\n    a,\n)",
        "return_value = a",
    ],
)
def test_what_no_test_can_notice_is_left_alone(source: str) -> None:
    assert mutations_of("a.py", source) == []


def test_one_line_changes_and_the_rest_stays() -> None:
    source = "a = 1\nb = 'ä' if c == 2 else d\n"
    found = [each for each in mutations_of("a.py", source) if each.kind == "other comparison"]
    assert [each.applied(source) for each in found] == ["a = 1\nb = 'ä' if c != 2 else d\n"]


def test_the_same_seed_draws_the_same() -> None:
    chosen = drawn(ROOT, 7, 60)
    assert chosen == drawn(ROOT, 7, 60)
    assert chosen != drawn(ROOT, 8, 60)
    assert len(set(chosen)) == 60
    for folder in CHECKS:
        assert sum(each.file.startswith(folder + "/") for each in chosen) == 12


def test_what_is_drawn_is_python_and_something_else() -> None:
    for mutation in drawn(ROOT, 7, 60):
        source = (ROOT / mutation.file).read_text("utf-8")
        changed = mutation.applied(source)
        assert ast.dump(ast.parse(changed)) != ast.dump(ast.parse(source))
        pairs = zip(source.splitlines(), changed.splitlines(), strict=True)
        assert [one for one, other in pairs if one != other] == [mutation.before]


def test_a_run_goes_on_where_it_was_broken_off(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    assert done_before(path, 7, "abc") == set()
    lines = [{"number": 1, "seed": 7, "commit": "abc"}, {"number": 2, "seed": 8, "commit": "abc"}]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert done_before(path, 7, "abc") == {1}


def test_every_folder_has_tests_and_rows() -> None:
    from faults.__main__ import GUARANTEES

    for folder, (tests, rows) in CHECKS.items():
        assert (ROOT / folder).is_dir()
        assert (ROOT / tests).is_dir()
        assert set(rows) <= GUARANTEES.keys()
    assert Mutation("a", 1, "k", "a", "b").applied("a\n") == "b\n"


def test_the_failed_test_is_found_behind_captured_logs() -> None:
    output = """
ERROR    lango.turns.attempt:attempt.py:218 Turn turn_1 could not be closed.
=== short test summary info ===
FAILED tests/turns/test_service.py::test_one[sqlite] - assert None
"""
    assert first_failure(output) == "tests/turns/test_service.py::test_one[sqlite]"
    assert first_failure("ERROR    lango.turns: no test\n1 error in 2.00s") is None


@pytest.mark.parametrize("is_noticed", [True, False])
def test_a_test_that_always_fails_hides_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_noticed: bool
) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # most of the time is theirs
    monkeypatch.setenv("PYTEST_PLUGINS", "xdist.plugin")
    package, tests = tmp_path / "lango/store", tmp_path / "tests/store"
    for folder in (package, tests):
        folder.mkdir(parents=True)
    for folder in (package, package.parent):
        (folder / "__init__.py").touch()
    (package / "code.py").write_text("def one():\n    return 1\n")
    expected = "1" if is_noticed else "one()"
    (tests / "test_code.py").write_text(
        "from lango.store.code import one\n"
        "def test_a(): assert False\n"
        f"def test_b(): assert one() == {expected}\n"
    )
    mutation = Mutation("lango/store/code.py", 2, "off by one", "    return 1", "    return 2")
    verdict = tried(mutation, CoveringTests(tmp_path / "none"), tmp_path, 60.0, rows=False)
    killed = Verdict("killed", "tests/store/test_code.py::test_b")
    assert verdict == (killed if is_noticed else Verdict("survived"))
