"""The file of results, and the table of the last full runs that the docs show from it.

Slices of one run may lie hours apart, with commits to the docs between them: they belong together
by their seed and by the commit that changed `lango` or `faults` last.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from faults.harness import Part
from lango.turns.engine.choose import DATABASE

ROOT: Final = Path(__file__).resolve().parent.parent
RESULTS: Final = ROOT / "docs" / "reliability-results.jsonl"
PAGE: Final = ROOT / "docs" / "reliability.md"
BEGIN: Final = "<!-- written from reliability-results.jsonl by `python -m faults --table` -->"
END: Final = "<!-- end of what is written -->"
_HEAD: Final = ("| # | command | on | commit | outcome |", "|---|---|---|---|---|")
_CHANGED: Final = "+"
"""Behind a commit: the code that ran had changes that are in no commit."""
_TESTED: Final = ("lango", "faults", "tests/server")
_NUMBER: Final = re.compile(r"\d+(?:,\d{3})*(?:\.\d+)?")
_MOST_FAILURES: Final = 20


@dataclass(frozen=True, slots=True)
class Result:
    """The result of one run of a row, or of a slice: one line of the file."""

    row: str
    count: int  # of the whole run, of which this may be a part; 0: all there are
    part: str
    seed: int | None  # None in older lines, which did not record it
    commit: str | None
    date: str
    outcome: str  # ok or failed
    figures: list[str]
    seconds: float | None
    failures: list[str] = field(default_factory=list[str])
    engine: str = DATABASE
    bus: str = DATABASE

    @property
    def title(self) -> str:
        """The row, and the engine and the bus if they are not the database."""
        carriers = [each for each in (self.engine, self.bus) if each != DATABASE]
        return f"{self.row} on {' and '.join(carriers)}" if carriers else self.row

    @property
    def slice(self) -> Part:
        """The part, parsed."""
        return Part.parsed(self.part)


def today() -> str:
    """The date of a result."""
    return datetime.now(UTC).date().isoformat()


def tested_commit() -> str | None:
    """The last commit that changed what is tested; with a plus where there is more than that."""
    try:
        commit = _git("log", "-1", "--format=%h", "--", *_TESTED)
        changed = _git("status", "--porcelain", "--", *_TESTED)
    except (OSError, subprocess.CalledProcessError):
        return None
    return commit + _CHANGED if changed else commit or None


def _git(*arguments: str) -> str:
    done = subprocess.run(("git", *arguments), cwd=ROOT, capture_output=True, check=True, text=True)
    return done.stdout.strip()


def append(result: Result, path: Path = RESULTS) -> None:
    """Add a line to the file, without defaults; failures that do not fit are left out."""
    line = asdict(result) | {"failures": result.failures[:_MOST_FAILURES]}
    if not result.failures:
        del line["failures"]
    for carrier in ("engine", "bus"):
        if line[carrier] == DATABASE:
            del line[carrier]
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line, ensure_ascii=False) + "\n")


def read(path: Path = RESULTS) -> list[Result]:
    """All lines, in the order in which they were added."""
    lines = path.read_text("utf-8").splitlines()
    return [Result(**json.loads(line)) for line in lines]


def full_runs(results: Iterable[Result], full: dict[str, int]) -> dict[str, list[Result]]:
    """The last run of each row that was full, on each engine and bus, as its slices in order.

    All slices have the row's full count, one seed and one commit without further changes. Where a
    slice was run twice, the later one counts.
    """
    slices: dict[tuple[object, ...], dict[int, Result]] = {}
    last: dict[str, list[Result]] = {}
    for result in results:
        if full.get(result.row) != result.count or (result.commit or "").endswith(_CHANGED):
            continue
        run = (result.title, result.seed, result.commit, result.slice.total)
        found = slices.setdefault(run, {})
        found[result.slice.number] = result
        if len(found) == result.slice.total:
            last[result.title] = [found[number] for number in sorted(found)]
    order = list(full)
    return dict(sorted(last.items(), key=lambda run: (order.index(run[1][0].row), run[0])))


def table(results: Iterable[Result], full: dict[str, int]) -> str:
    """The table of the last full runs, in the order of the rows."""
    runs = full_runs(results, full)
    return "\n".join([*_HEAD, *(_line(title, run) for title, run in runs.items())])


def _line(title: str, run: Sequence[Result]) -> str:
    first = run[0]
    command = f"python -m faults --only {first.row}"
    for option, carrier in (("engine", first.engine), ("bus", first.bus)):
        if carrier != DATABASE:
            command += f" --{option} {carrier}"
    if first.seed is not None:
        command += f" --seed {first.seed}"
    parts = f", {len(run)} parts" if len(run) > 1 else ""
    dates = sorted({result.date for result in run})
    on = dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"
    cells = (title, f"`{command}`{parts}", on, first.commit or "", _outcome(run))
    return "| " + " | ".join(cells) + " |"


def _outcome(run: Sequence[Result]) -> str:
    """The figures, which of several parts are the least and the most of them, and how it ended."""
    figures = "; ".join(_merged([result.figures for result in run]))
    if len(run) > 1:
        figures = f"in each part {figures}"
    failed = [result for result in run if result.outcome != "ok"]
    if not failed:
        return f"{figures}: ok"
    failures = [failure for result in failed for failure in result.failures] or ["failed"]
    more = f" (and {len(failures) - 1} more)" if len(failures) > 1 else ""
    return f"{figures}: **failed**: {failures[0].replace('|', '/')}{more}"


def _merged(figures: Sequence[list[str]]) -> Iterator[str]:
    """Figures that differ in their numbers alone become one, with the range of each number."""
    same: dict[str, list[list[str]]] = {}
    for part in figures:
        for figure in part:
            same.setdefault(_NUMBER.sub("#", figure), []).append(_NUMBER.findall(figure))
    for words, found in same.items():
        pieces = words.split("#")
        numbers = [_range(values) for values in zip(*found, strict=True)]
        yield "".join(a + b for a, b in zip(pieces, [*numbers, ""], strict=True))


def _range(values: Sequence[str]) -> str:
    least, most = min(values, key=_value), max(values, key=_value)
    return least if _value(least) == _value(most) else f"{least}–{most}"


def _value(number: str) -> float:
    return float(number.replace(",", ""))


def written(page: str, rows: str) -> str:
    """The page with the table between its two markers."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"{PAGE.name} lacks the markers {BEGIN} and {END}")
    return f"{before}{begin}\n\n{rows}\n\n{end}{after}"


def write_table(full: dict[str, int]) -> None:
    """Write the table into the docs."""
    page = PAGE.read_text("utf-8")
    PAGE.write_text(written(page, table(read(), full)), "utf-8")
