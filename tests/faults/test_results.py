"""Slices of a run, the file of results, and the table in the docs."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from faults import __main__ as command
from faults import results
from faults.__main__ import FULL, GUARANTEES
from faults.harness import WHOLE, Databases, Guarantee, Outcome, Part, Run
from faults.recovery.kill_shapes import SHAPES
from faults.recovery.kills import tasks_of
from faults.results import Result

DATABASES = Databases("sqlite+aiosqlite://", "postgresql+asyncpg://")
ROW = "ROW"
LINE = Result(
    ROW, 100, "1/1", 7, "abc1234", "2026-01-02", "ok", ["100 turns, the slowest 2.1 s"], 3
)


def row(*, picks: bool = False, failure: str = "") -> Guarantee:
    def run(run: Run) -> Outcome:
        return Outcome([f"{run.count} of seed {run.seed}"], [failure] if failure else [])

    return Guarantee(ROW, "a promise", 100, 10, run, picks=picks)


@pytest.mark.parametrize("of", [1, 3, 8])
@pytest.mark.parametrize("whole", [8, 100, 1001])
def test_the_parts_make_up_the_whole(whole: int, of: int) -> None:
    parts = [Part(number, of) for number in range(1, of + 1)]
    assert sum(part.count(whole) for part in parts) == whole
    assert max(part.count(whole) for part in parts) <= -(-whole // of)
    picked = [trial for part in parts for trial in part.pick(range(whole))]
    assert sorted(picked) == list(range(whole))
    assert len({part.seed(7) for part in parts}) == of


@pytest.mark.parametrize("text", ["0/8", "9/8", "3", "3/", "a/b", "-1/2", ""])
def test_what_is_no_part_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no part"):
        Part.parsed(text)


def test_a_row_is_asked_for_its_share() -> None:
    run = row().share(100, 7, DATABASES, part=Part(3, 8))
    assert (run.count, run.part) == (12, WHOLE)
    assert run == row().share(100, 7, DATABASES, part=Part(3, 8))
    assert run.seed not in (7, row().share(100, 7, DATABASES, part=Part(2, 8)).seed)
    assert row().share(100, 7, DATABASES) == Run(100, 7, DATABASES)


def test_a_row_that_picks_receives_its_part() -> None:
    run = row(picks=True).share(0, 7, DATABASES, part=Part(3, 8))
    assert (run.count, run.seed, run.part) == (0, 7, Part(3, 8))


@pytest.mark.parametrize("count", [0, 300])
def test_the_parts_of_the_kill_sweep_are_the_whole_sweep(count: int) -> None:
    whole = tasks_of(Run(count, 7, DATABASES), list(SHAPES))
    parts = [Run(count, 7, DATABASES, part=Part(number, 8)) for number in range(1, 9)]
    sliced = [task for run in parts for task in tasks_of(run, list(SHAPES))]
    assert sorted(map(repr, sliced)) == sorted(map(repr, whole))
    assert len(set(sliced)) == len(sliced) > 8


def test_no_part_is_without_a_trial() -> None:
    with pytest.raises(ValueError, match="no 8 parts"):
        row().share(7, 1, DATABASES, part=Part(1, 8))


def test_a_run_adds_its_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(GUARANTEES, ROW, row(failure="it broke"))
    monkeypatch.setattr(results, "tested_commit", lambda: "abc1234")
    path = tmp_path / "results.jsonl"
    arguments = ["--only", ROW, "--seed", "7", "--part", "2/4", "--results", str(path)]
    assert command.main(arguments) == 1
    (line,) = results.read(path)
    assert line.figures == [f"25 of seed {Part(2, 4).seed(7)}"]
    assert (line.outcome, line.failures, line.part) == ("failed", ["it broke"], "2/4")
    assert (line.count, line.seed, line.commit) == (100, 7, "abc1234")
    assert str(tmp_path) not in path.read_text()


@pytest.mark.parametrize(("arguments", "is_kept"), [([], True), (["--count", "5"], False)])
def test_full_counts_are_kept(
    arguments: list[str], is_kept: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(GUARANTEES, ROW, row())
    monkeypatch.setattr(results, "RESULTS", tmp_path / "results.jsonl")
    assert command.main(["--only", ROW, *arguments]) == 0
    assert (tmp_path / "results.jsonl").exists() == is_kept


def sliced(*numbers: int) -> list[Result]:
    figures = {1: ["50 turns, the slowest 2.1 s"], 2: ["1,050 turns, the slowest 0.9 s", "more"]}
    return [replace(LINE, part=f"{number}/2", figures=figures[number]) for number in numbers]


def test_a_run_is_full_when_all_its_parts_are_there() -> None:
    found = results.full_runs([LINE, *sliced(2)], {ROW: 100})
    assert found == {ROW: [LINE]}
    found = results.full_runs([LINE, *sliced(2, 1)], {ROW: 100})
    assert found == {ROW: sliced(1, 2)}


@pytest.mark.parametrize(
    "other",
    [
        {"seed": 8},
        {"commit": "abc1235"},
        {"count": 50},
        {"part": "2/3"},
        {"commit": "abc1234+"},
        {"engine": "temporal"},
        {"bus": "nats"},
    ],
    ids=["seed", "commit", "count", "number of parts", "changes in no commit", "engine", "bus"],
)
def test_parts_of_another_run_do_not_count(other: dict[str, str]) -> None:
    first, second = sliced(1, 2)
    assert results.full_runs([first, second], {ROW: 100}) != {}
    assert results.full_runs([first, replace(second, **other)], {ROW: 100}) == {}


def test_the_table_gives_ranges_of_parts() -> None:
    written = results.table(sliced(1, 2), {ROW: 100}).splitlines()[-1]
    result = "in each part 50–1,050 turns, the slowest 0.9–2.1 s; more: ok"
    command = "`python -m faults --only ROW --seed 7`, 2 parts"
    assert written == f"| ROW | {command} | 2026-01-02 | abc1234 | {result} |"


def test_each_engine_and_bus_has_a_line_of_its_own() -> None:
    on_temporal = replace(LINE, engine="temporal", bus="nats", seed=8)
    written = results.table([on_temporal, LINE], {ROW: 100}).splitlines()[-2:]
    assert written[0].startswith("| ROW | `python -m faults --only ROW --seed 7` |")
    command = "`python -m faults --only ROW --engine temporal --bus nats --seed 8`"
    assert written[1].startswith(f"| ROW on temporal and nats | {command} |")


def test_a_line_names_the_engine_and_the_bus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "results.jsonl"
    for result in (LINE, replace(LINE, engine="temporal"), replace(LINE, bus="redis")):
        results.append(result, path)
    assert [(each.engine, each.bus) for each in results.read(path)] == [
        ("database", "database"),
        ("temporal", "database"),
        ("database", "redis"),
    ]
    assert "engine" not in path.read_text().splitlines()[0]
    monkeypatch.setattr(command, "ON_CARRIERS", (ROW,))
    monkeypatch.setitem(GUARANTEES, ROW, row())
    assert command.main(["--only", ROW, "--bus", "redis", "--results", str(path)]) == 0
    assert results.read(path)[-1].bus == "redis"


def test_the_table_names_a_failed_run() -> None:
    failed = replace(LINE, outcome="failed", failures=["a | b", "c"])
    assert "**failed**: a / b (and 1 more) |" in results.table([LINE, failed], {ROW: 100})
    first, second = sliced(1, 2)
    one = [replace(first, outcome="failed", failures=["it broke"]), second]
    assert "**failed**: it broke |" in results.table(one, {ROW: 100})


def test_the_docs_show_what_the_file_holds() -> None:
    page = results.PAGE.read_text("utf-8")
    assert results.written(page, results.table(results.read(), FULL)) == page
    lines = results.RESULTS.read_text("utf-8").splitlines()
    assert {json.loads(line)["row"] for line in lines} <= FULL.keys()


def test_a_page_without_the_markers_is_refused() -> None:
    with pytest.raises(ValueError, match="lacks the markers"):
        results.written("no markers", "rows")
