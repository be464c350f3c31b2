"""`python -m faults.mutations`: break one line of the code at a time, and see which check fails.

Each mutation is made in a copy of the last commit. The tests that run the line come first, then
those of the file's folder; if they pass, named rows of the fault table run at their CI
counts. Each line of the results names the check that noticed the mutation, or says that it
survived. A test that fails must pass without the mutation, or it has noticed nothing. The same seed
and commit give the same mutations, so a run can be made in parts and resumed.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from faults.covering_tests import CoveringTests
from faults.harness import WHOLE, Part
from faults.results import ROOT, today

RESULTS: Final = ROOT / "docs" / "mutation-results.jsonl"
CHECKS: Final[dict[str, tuple[str, tuple[str, ...]]]] = {
    "lango/store": ("tests/store", ("QUEUE", "G12", "G1", "BLACKBOX")),
    "lango/turns": ("tests/turns", ("QUEUE", "READ", "G2", "BLACKBOX")),
    "lango/adk/durable": ("tests/adk/durable", ("G1", "G3", "G2", "BLACKBOX")),
    "lango/providers": ("tests/providers", ("G13", "G14", "G15", "BLACKBOX")),
    "lango/server": ("tests/server", ("G17", "BLACKBOX")),
}
"""Each folder: the tests that cover it, and the rows to run if these pass."""
_LEFT_OUT: Final = ("migrations", "__init__.py")
_LOGGERS: Final = ("log", "_log", "logger", "_logger", "logging")
_OTHER: Final[dict[type[ast.cmpop], tuple[str, str]]] = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
}


@dataclass(frozen=True)
class Mutation:
    """A change of one line of a file."""

    file: str
    line: int
    kind: str
    before: str
    after: str

    def applied(self, source: str) -> str:
        """The whole file with the line changed."""
        lines = source.splitlines(keepends=True)
        end = lines[self.line - 1][len(lines[self.line - 1].rstrip("\r\n")) :]
        lines[self.line - 1] = self.after + end
        return "".join(lines)


class _Finder(ast.NodeVisitor):
    """Finds all mutations of a file that stay within one line."""

    def __init__(self, file: str, source: str) -> None:
        self._file = file
        self._lines = source.splitlines()
        self.found: list[Mutation] = []

    def _add(self, node: ast.expr | ast.stmt, kind: str, new: str) -> None:
        """Add a replacement of the node's text; skip a node of several lines."""
        if node.lineno != node.end_lineno or node.end_col_offset is None:
            return
        line = self._lines[node.lineno - 1]
        raw = line.encode()
        after = raw[: node.col_offset] + new.encode() + raw[node.end_col_offset :]
        if after != raw:
            made = Mutation(self._file, node.lineno, kind, line, after.decode())
            self.found.append(made)

    def _text(self, node: ast.expr) -> str:
        raw = self._lines[node.lineno - 1].encode()
        return raw[node.col_offset : node.end_col_offset].decode()

    def visit_If(self, node: ast.If) -> None:
        if not (isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"):
            self._add(node.test, "negated condition", f"not ({self._text(node.test)})")
            self.generic_visit(node)

    def visit_While(self, node: ast.While) -> None:
        self._add(node.test, "negated condition", f"not ({self._text(node.test)})")
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        if len(node.ops) == 1 and node.lineno == node.end_lineno:
            left, right = self._text(node.left), self._text(node.comparators[0])
            old, new = _OTHER[type(node.ops[0])]
            if self._text(node) == f"{left} {old} {right}":
                self._add(node, "other comparison", f"{left} {new} {right}")
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        if node.lineno == node.end_lineno:
            word = " or " if isinstance(node.op, ast.And) else " and "
            new = word.join(f"({self._text(value)})" for value in node.values)
            self._add(node, "and for or", f"({new})")
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, bool):
            self._add(node, "other truth", str(not node.value))
        elif isinstance(node.value, int):
            self._add(node, "off by one", str(node.value + 1))

    def visit_Expr(self, node: ast.Expr) -> None:
        value = node.value.value if isinstance(node.value, ast.Await) else node.value
        if isinstance(value, ast.Constant) or _is_logging(value):
            return
        kind = "awaited call dropped" if value is not node.value else "statement dropped"
        if isinstance(value, ast.Call):
            self._add(node, kind, "pass")
        self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        if any(isinstance(target, ast.Attribute | ast.Subscript) for target in node.targets):
            self._add(node, "statement dropped", "pass")
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self._add(node, "statement dropped", "pass")
        self.generic_visit(node)

    def visit_Raise(self, node: ast.Raise) -> None:
        self._add(node, "statement dropped", "pass")

    def visit_Return(self, node: ast.Return) -> None:
        if node.value is not None and not isinstance(node.value, ast.Constant):
            self._add(node, "returned nothing", "return None")
        self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def _visit_function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        """Visit body and defaults: decorators and annotations do not change behaviour."""
        for default in (*node.args.defaults, *filter(None, node.args.kw_defaults)):
            self.visit(default)
        for statement in node.body:
            self.visit(statement)

    visit_FunctionDef = visit_AsyncFunctionDef = _visit_function

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        for statement in node.body:
            self.visit(statement)


def _is_logging(node: ast.expr) -> bool:
    called = node.func if isinstance(node, ast.Call) else None
    owner = called.value if isinstance(called, ast.Attribute) else None
    return isinstance(owner, ast.Name) and owner.id in _LOGGERS


def mutations_of(file: str, source: str) -> list[Mutation]:
    """All mutations of a file that are still valid Python."""
    finder = _Finder(file, source)
    finder.visit(ast.parse(source))
    return list(dict.fromkeys(finder.found))


def drawn(root: Path, seed: int, count: int) -> list[Mutation]:
    """Draw `count` mutations, spread evenly over the folders; deterministic for a seed."""
    draw = random.Random(seed)
    chosen: dict[str, list[Mutation]] = {}
    for folder in CHECKS:
        every = [
            mutation
            for path in sorted((root / folder).rglob("*.py"))
            if not any(part in _LEFT_OUT for part in path.parts)
            for mutation in mutations_of(str(path.relative_to(root)), path.read_text("utf-8"))
        ]
        chosen[folder] = draw.sample(every, -(-count // len(CHECKS)))
    in_turn = [each for some in zip(*chosen.values(), strict=True) for each in some]
    return in_turn[:count]


@dataclass(frozen=True)
class Verdict:
    """The result of a mutation: `killed` by a check, `timeout` of one, or `survived` all."""

    outcome: str
    by: str = ""


_PYTEST: Final = ("-m", "pytest", "-q", "-x", "-rfE", "-p", "no:cacheprovider")
_FAILED: Final = re.compile(r"^(?:FAILED|ERROR) (tests/.+?)(?: - .*)?$", re.MULTILINE)


def _checks(
    mutation: Mutation, covering: CoveringTests, *, rows: bool
) -> Iterator[tuple[str, Sequence[str]]]:
    """The checks in order: first the tests that run the line."""
    folder = next(each for each in CHECKS if mutation.file.startswith(each + "/"))
    tests, named = CHECKS[folder]
    own = covering.for_line(mutation.file, mutation.line)
    if own:
        yield f"{len(own)} tests of the line", [*_PYTEST, *own]
    yield tests, [*_PYTEST, "-n", "2", tests]
    for row in named if rows else ():
        yield row, ["-m", "faults", "--only", row, "--ci", "--seed", "1"]


def tried(
    mutation: Mutation, covering: CoveringTests, root: Path, limit: float, *, rows: bool
) -> Verdict:
    """Apply the mutation in a copy, run the checks until one fails, and revert it."""
    path = root / mutation.file
    source = path.read_text("utf-8")
    for name, command in _checks(mutation, covering, rows=rows):
        failing: list[str] = []  # tests that fail without the mutation too
        while True:
            path.write_text(mutation.applied(source), "utf-8")
            deselected = [f"--deselect={test}" for test in failing]
            try:
                code, output = _run([*command, *deselected], root, limit)
            finally:
                path.write_text(source, "utf-8")
            if code is None:
                return Verdict("timeout", name)
            failed = first_failure(output)
            if code == 0 or failed in failing:
                break
            if not failed or not _run([*_PYTEST, failed], root, limit)[0]:
                return Verdict("killed", failed or name)
            print(f"  {failed} fails without the mutation too", flush=True)
            failing.append(failed)
    return Verdict("survived")


def first_failure(output: str) -> str | None:
    """The id of the first test that failed; the output may also have lines of captured logs."""
    failed = _FAILED.search(output)
    return failed[1] if failed else None


def _run(command: Sequence[str], root: Path, limit: float) -> tuple[int | None, str]:
    """The exit code, or None on a timeout, and the output."""
    environment = os.environ | {"PYTHONPATH": str(root), "PYTHONDONTWRITEBYTECODE": "1"}
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as output:
        process = subprocess.Popen(
            [sys.executable, *command],
            cwd=root,
            env=environment,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            code = process.wait(limit)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        output.seek(0)
        return code, output.read()


def _commit() -> str:
    done = subprocess.run(
        ["git", "log", "-1", "--format=%h", "--", "lango", "tests", "faults"],
        cwd=ROOT,
        capture_output=True,
        check=True,
        text=True,
    )
    return done.stdout.strip()


def _copy(commit: str, folder: Path) -> None:
    """The files of a commit, without its history; PostgreSQL's user may read them too."""
    folder.chmod(0o755)
    with subprocess.Popen(["git", "archive", commit], cwd=ROOT, stdout=subprocess.PIPE) as archive:
        subprocess.run(["tar", "-x", "-C", str(folder)], stdin=archive.stdout, check=True)
    found = subprocess.run(
        [sys.executable, "-c", "import lango; print(lango.__file__)"],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(folder)},
        capture_output=True,
        check=True,
        text=True,
    )
    if not Path(found.stdout.strip()).is_relative_to(folder):
        raise RuntimeError(f"the copy is not what would be tested: {found.stdout.strip()}")


def done_before(path: Path, seed: int, commit: str) -> set[int]:
    """The numbers of the mutations that have results."""
    if not path.exists():
        return set()
    lines = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    return {each["number"] for each in lines if (each["seed"], each["commit"]) == (seed, commit)}


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m faults.mutations", description=__doc__)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--part", type=Part.parsed, default=WHOLE, help="a slice of it, as 3/8")
    parser.add_argument("--limit", type=float, default=600.0, help="seconds for each check")
    parser.add_argument("--no-rows", action="store_true", help="the tests alone")
    parser.add_argument("--list", action="store_true", help="print the mutations and end")
    parser.add_argument("--results", type=Path, default=RESULTS)
    return parser.parse_args(argv)


def _show(number: int, mutation: Mutation) -> None:
    print(f"{number}: {mutation.file}:{mutation.line} {mutation.kind}")
    print(f"  - {mutation.before.strip()}\n  + {mutation.after.strip()}", flush=True)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the mutations of a part; return 0 if every one was found."""
    arguments = _arguments(argv)
    commit = _commit()
    survived = 0
    with tempfile.TemporaryDirectory(prefix="lango-") as folder:
        root = Path(folder).resolve()
        _copy(commit, root)
        everything = list(enumerate(drawn(root, arguments.seed, arguments.count), 1))
        before = done_before(arguments.results, arguments.seed, commit)
        selected = arguments.part.pick(everything)
        if arguments.list:
            for number, mutation in selected:
                _show(number, mutation)
            return 0
        covering = CoveringTests.load_or_measure(root, ROOT / "build" / "coverage" / commit)
        for number, mutation in selected:
            if number in before:
                continue
            _show(number, mutation)
            began = time.monotonic()
            verdict = tried(mutation, covering, root, arguments.limit, rows=not arguments.no_rows)
            survived += verdict.outcome == "survived"
            print(f"  {verdict.outcome} {verdict.by}", flush=True)
            result = {
                **{"number": number, "seed": arguments.seed, "commit": commit, "date": today()},
                **asdict(mutation),
                **asdict(verdict),
                **{"rows": not arguments.no_rows, "limit": arguments.limit},
                "seconds": round(time.monotonic() - began, 1),
            }
            with arguments.results.open("a", encoding="utf-8") as file:
                file.write(json.dumps(result, ensure_ascii=False) + "\n")
    return 1 if survived else 0


if __name__ == "__main__":
    sys.exit(main())
