"""G1 and G3: processes killed and frozen in the middle of turns, of every shape of agent."""

from __future__ import annotations

import multiprocessing
import os
import random
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Final

from faults.harness import Guarantee, Outcome, Run
from faults.kill_shapes import ONCE, SHAPES, quiet
from lango.testing.kills import SweepReport, kill_sweep

_FREEZES: Final = 0.2
_MORE_KILLS: Final = 1
_AT_LEAST: Final = 300
"""From so many trials on, every kind of failpoint of every shape comes up."""


@dataclass(frozen=True, slots=True)
class _Task:
    shape: str
    database: str
    url: str
    count: int
    first: int
    seed: int


def every_shape(run: Run) -> Outcome:
    """Kills drawn over all shapes and both databases, each pair at least once."""
    return _swept(run, list(SHAPES))


def tools_that_run_once(run: Run) -> Outcome:
    """The same, where tools are not idempotent: they never run twice."""
    return _swept(run, ONCE)


def _swept(run: Run, shapes: list[str]) -> Outcome:
    outcome = Outcome()
    total = SweepReport(run.seed, 0)
    # Forked, not spawned: ADK is loaded once. The children of these are forked in turn.
    context = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(os.cpu_count() or 1, mp_context=context) as pool:
        tasks = _tasks(run, shapes)
        for task, report in zip(tasks, pool.map(_sweep, tasks), strict=True):
            _add(total, report)
            for wrong in report.wrong:
                place = f"{task.shape} on {task.database}, seed {task.seed}"
                outcome.fail(f"{place}: {wrong}")
    kinds = len(total.killed_at)
    outcome.note(f"{total.trials} turns cut off by {total.kills} kills and freezes")
    outcome.note(f"{len(shapes)} shapes on 2 databases, {kinds} kinds of failpoint")
    outcome.note(f"{total.unknown} with an outcome unknown, {total.woken} frozen and woken")
    if run.count >= _AT_LEAST:
        missed = total.kinds - set(total.killed_at)
        outcome.expect(not missed, f"never killed at {sorted(missed)}")
    return outcome


def _tasks(run: Run, shapes: list[str]) -> list[_Task]:
    """The trials shared out evenly; the second database goes on with the kinds of the first."""
    drawn = random.Random(run.seed)
    databases = run.places.each()
    places = [(shape, database) for shape in shapes for database in databases]
    share, rest = divmod(run.count, len(places))
    tasks: list[_Task] = []
    for number, (shape, database) in enumerate(places):
        count = share + (number < rest)
        shape_number, second = divmod(number, len(databases))
        first = 3 * shape_number + second * count
        url = databases[database]
        tasks.append(_Task(shape, database, url, count, first, drawn.randrange(2**32)))
    return [task for task in tasks if task.count]


def _sweep(task: _Task) -> SweepReport:
    quiet()
    shape = SHAPES[task.shape]
    # A process that is frozen while it writes keeps SQLite's file locked: nobody can go on.
    frozen_in_a_write = shape.side_by_side and task.database == "sqlite"
    return kill_sweep(
        shape.make,
        shape.turns,
        task.url,
        count=task.count,
        first=task.first,
        seed=task.seed,
        freezes=0.0 if frozen_in_a_write else _FREEZES,
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
    full=2_000,
    ci=300,
    run=every_shape,
)
G3: Final = Guarantee(
    "G3",
    "workers killed in mid-turn: a tool that is not idempotent never runs twice",
    full=500,
    ci=50,
    run=tools_that_run_once,
)
