"""G1 and G3: processes killed and frozen in the middle of turns, of every shape of agent."""

from __future__ import annotations

import multiprocessing
import os
import random
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Final

from faults.harness import WHOLE, Guarantee, Outcome, Run
from faults.recovery.kill_shapes import ONCE, SHAPES, SWEEP_SHAPES, quiet
from lango.testing.kills import SweepReport, kill_sweep

_FREEZES: Final = 0.2
_ALL: Final = 0
"""The count that stands for every failpoint, each killed once and frozen once."""
_MORE_KILLS: Final = 1
_AT_LEAST: Final = 300
"""With this many trials, every kind of failpoint of every shape comes up."""


@dataclass(frozen=True, slots=True)
class Task:
    """A sweep: one shape on one database, killed or frozen."""

    shape: str
    database: str
    url: str
    seed: int
    freezes: float
    count: int | None = None  # None: every failpoint
    first: int = 0


Check = Callable[[str, SweepReport], Iterable[str]]
"""Finds problems of a shape's run without kills, in addition to those of the sweep."""


def every_shape(run: Run) -> Outcome:
    """Kills drawn over all shapes and both databases, each pair at least once."""
    return run_sweeps(run, list(SHAPES))


def tools_that_run_once(run: Run) -> Outcome:
    """The same, where tools are not idempotent: they never run twice."""
    return run_sweeps(run, ONCE)


def run_sweeps(run: Run, shapes: list[str], check: Check | None = None) -> Outcome:
    """Run kills drawn over these shapes of `SWEEP_SHAPES`, on both databases."""
    outcome = Outcome()
    total = SweepReport(run.seed, 0)
    # Forked, not spawned: ADK is loaded once. Their children are forked, too.
    context = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(os.cpu_count() or 1, mp_context=context) as pool:
        tasks = tasks_of(run, shapes)
        for task, report in zip(tasks, pool.map(_sweep, tasks), strict=True):
            _add(total, report)
            for wrong in report.wrong:
                trial = f"{task.shape} on {task.database}, seed {task.seed}"
                outcome.fail(f"{trial}: {wrong}")
            for wrong in check(task.shape, report) if check else ():
                outcome.fail(f"{task.shape} on {task.database}, without kills: {wrong}")
    kinds = len(total.killed_at)
    shapes = sorted({task.shape for task in tasks})
    databases = len({task.database for task in tasks})
    outcome.note(f"{total.trials} turns cut off by {total.kills} kills and freezes")
    outcome.note(f"{len(shapes)} shapes on {databases} databases, {kinds} kinds of failpoint")
    outcome.note(f"{total.unknown} with an outcome unknown, {total.woken} frozen and woken")
    if run.count == _ALL or (run.count >= _AT_LEAST and run.part == WHOLE):
        missed = total.kinds - set(total.killed_at)
        outcome.expect(not missed, f"never killed at {sorted(missed)}")
    return outcome


def tasks_of(run: Run, shapes: list[str]) -> list[Task]:
    """The sweeps of this part; shuffled, so that all parts take about equally long."""
    tasks = _drawn(run, shapes) if run.count else _every(run, shapes)
    random.Random(run.seed).shuffle(tasks)
    return run.part.pick(tasks)


def _every(run: Run, shapes: list[str]) -> list[Task]:
    """Each failpoint of each shape on each database: killed there once, and frozen there once."""
    drawn = random.Random(run.seed)
    return [
        Task(shape, database, url, drawn.randrange(2**32), freezes)
        for shape in shapes
        for database, url in run.databases.each().items()
        for freezes in (0.0, 1.0)
        if not (freezes and _locks_when_frozen(shape, database))
    ]


def _drawn(run: Run, shapes: list[str]) -> list[Task]:
    """The trials spread evenly; the second database continues with the failpoints of the first."""
    drawn = random.Random(run.seed)
    databases = run.databases.each()
    pairs = [(shape, database) for shape in shapes for database in databases]
    share, rest = divmod(run.count, len(pairs))
    tasks: list[Task] = []
    for number, (shape, database) in enumerate(pairs):
        count = share + (number < rest)
        if not count:
            continue
        shape_number, second = divmod(number, len(databases))
        first = 3 * shape_number + second * count
        freezes = 0.0 if _locks_when_frozen(shape, database) else _FREEZES
        seed = drawn.randrange(2**32)
        tasks.append(Task(shape, database, databases[database], seed, freezes, count, first))
    return tasks


def _locks_when_frozen(shape: str, database: str) -> bool:
    """Whether a process frozen while it writes blocks all others by its lock on SQLite's file."""
    return SWEEP_SHAPES[shape].side_by_side and database == "sqlite"


def _sweep(task: Task) -> SweepReport:
    quiet()
    shape = SWEEP_SHAPES[task.shape]
    return kill_sweep(
        shape.make,
        shape.turns,
        task.url,
        count=task.count,
        first=task.first,
        seed=task.seed,
        freezes=task.freezes,
        more_kills=_MORE_KILLS,
        state=shape.state,
    )


def _add(total: SweepReport, report: SweepReport) -> None:
    total.trials += report.trials
    total.kinds |= report.kinds
    total.kills += report.kills
    total.unknown += report.unknown
    total.woken += report.woken
    total.zombie_effects += report.zombie_effects
    total.killed_at += Counter(report.killed_at)


G1: Final = Guarantee(
    "G1",
    "workers killed and frozen in mid-turn: the history as if nothing had happened",
    full=_ALL,
    ci=300,
    run=every_shape,
    parts=8,
    picks=True,
)
G3: Final = Guarantee(
    "G3",
    "workers killed in mid-turn: a tool that is not idempotent never runs twice",
    full=_ALL,
    ci=50,
    run=tools_that_run_once,
    parts=2,
    picks=True,
)
