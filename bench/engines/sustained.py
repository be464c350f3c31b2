"""Empty turns at a steady rate for an hour: is the event log bounded, and is any turn lost?

Workers delete the logs of ended turns after a short retention, as in a service that has run for
longer than its `event_retention_seconds`. Rows of `turns` are kept by design.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import TYPE_CHECKING, Final

from bench.pg import own_database
from bench.report import Table, summary, verdicts
from bench.rounds import Interval
from bench.targets import Finding, Target, exit_code
from bench.turns.load import submit_steadily, tally
from bench.turns.process import poll_until, worker_process
from bench.turns.worker_context import BenchSettings, queue, worker_context

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.turns.process import WorkerProcess
    from bench.turns.worker_context import Queue

SESSIONS: Final = 2_000
RETENTION: Final = 20.0
"""Seconds that the log of an ended turn is kept."""
EVENTS: Final = 3
"""Events of an empty turn: accepted, started, completed."""
_UPKEEP: Final = 90.0  # seconds: the longest time between two rounds of a worker's upkeep
_SLACK: Final = 15.0  # seconds that a turn and a trim may take
_MINUTE: Final = 60.0
_LOG_GROWTH: Final = 1.2  # a table that only grows would show 1.67
_MEMORY_GROWTH: Final = 1.05
_MIN_MINUTES: Final = 6

_SIZES: Final = """
select (select count(*) from turn_events), (select count(*) from turns),
  pg_total_relation_size('turn_events') / 1e6::float, pg_total_relation_size('turns') / 1e6::float
"""
_DELAYS: Final = """
select count(*) filter (where ended is not null),
  coalesce(1e3 * percentile_cont(0.5) within group (order by delay), 0)::float,
  coalesce(1e3 * percentile_cont(0.95) within group (order by delay), 0)::float
from (select ended, extract(epoch from started - created) as delay from turns
  where created > now() - make_interval(secs => $1)) as recent
"""


@dataclass(frozen=True, slots=True)
class Minute:
    """One minute of the run. Sizes are in MB, delays from submit to start in ms."""

    done: int
    lost: int
    log_rows: int
    turn_rows: int
    log_size: float
    turns_size: float
    memory: float
    median: float
    p95: float


def bound(rate: float, retention: float) -> float:
    """The most rows that the log may have: those kept, and those of one round of upkeep."""
    return EVENTS * rate * (retention + _UPKEEP + _SLACK)


def findings(
    minutes: Sequence[Minute], *, rate: float, retention: float, lost: int
) -> list[Finding]:
    """The findings of the run; a short run cannot show that something stays bounded."""
    rows = max(minute.log_rows for minute in minutes) / bound(rate, retention)
    full = rate * EVENTS * len(minutes) * _MINUTE  # if nothing were deleted
    can_tell = full > 2 * bound(rate, retention)
    log = Interval(rows, rows, rows if can_tell or rows > 1 else float("inf"))
    return [
        Finding(Target("turns lost", 0, unit=""), Interval.exact(lost)),
        Finding(Target("rows of turn_events, × what the retention allows", 1), log),
        _growth("size of turn_events", _LOG_GROWTH, [minute.log_size for minute in minutes]),
        _growth("memory of the worker", _MEMORY_GROWTH, [minute.memory for minute in minutes]),
    ]


def _growth(what: str, limit: float, series: Sequence[float]) -> Finding:
    """The last third of a series against the middle third: the first one fills caches and pages."""
    target = Target(f"{what}, last third × middle third", limit)
    if len(series) < _MIN_MINUTES:
        return Finding(target, Interval(1.0, 0.0, float("inf")))
    third = len(series) // 3
    return Finding(
        target, Interval.exact(median(series[-third:]) / median(series[-2 * third : -third]))
    )


async def _minute(made: Queue, worker: WorkerProcess, seconds: float) -> Minute:
    log_rows, turn_rows, log_size, turns_size = await made.row(_SIZES)
    done, middle, p95 = await made.row(_DELAYS, seconds)
    lost, memory = (await tally(made)).lost, (await worker.figures()).memory
    sizes = log_rows, turn_rows, log_size, turns_size, memory
    return Minute(done, lost, *sizes, middle, p95)


async def _watch(made: Queue, worker: WorkerProcess, minutes: list[Minute]) -> None:
    """Record each minute, until cancelled."""
    began = time.monotonic()
    while True:
        await asyncio.sleep(began + (len(minutes) + 1) * _MINUTE - time.monotonic())
        minutes.append(await _minute(made, worker, _MINUTE))
        print(f"minute {len(minutes)}: {minutes[-1]}", flush=True)


def _table(minutes: Sequence[Minute], title: str) -> Table:
    columns = ("minute", "turns done", "lost", "rows in turn_events", "in turns")
    sizes = ("MB of turn_events", "of turns", "MB of the worker")
    table = Table(title, (*columns, *sizes, "submit to start, ms", "95th percentile"))
    for number, minute in enumerate(minutes, 1):
        table.add(
            *(number, f"{minute.done:,}", minute.lost),
            *(f"{minute.log_rows:,}", f"{minute.turn_rows:,}"),
            *(f"{minute.log_size:.1f}", f"{minute.turns_size:.1f}", f"{minute.memory:.0f}"),
            *(f"{minute.median:.1f}", f"{minute.p95:.1f}"),
        )
    return table


async def main(*, seconds: float, rate: float, retention: float = RETENTION) -> int:
    """Run it; the exit code."""
    minutes: list[Minute] = []
    async with own_database("_sustained") as url:
        settings = BenchSettings(url, event_retention_seconds=retention)
        async with (
            queue(settings) as made,
            worker_process(settings) as worker,
            worker_context(settings) as context,
        ):
            sessions = await made.sessions(SESSIONS)
            watching = asyncio.create_task(_watch(made, worker, minutes))
            accepted, failures = await submit_steadily(context, sessions, rate, seconds)
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
            over = await poll_until(partial(tally, made), lambda found: not found.still_open)
            if len(minutes) * _MINUTE < seconds:
                minutes.append(await _minute(made, worker, seconds - len(minutes) * _MINUTE))
    lost = accepted - over.completed + failures
    found = findings(minutes, rate=rate, retention=retention, lost=lost)
    title = f"{rate:g} empty turns a second for {seconds:g} s, logs kept for {retention:g} s"
    print(_table(minutes, title))
    print(verdicts(found))
    print(summary("sustained", found, seconds))
    return exit_code(found)
