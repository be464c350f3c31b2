"""The benchmark of durable turns: every measure in one run, each on databases of its own."""

from __future__ import annotations

import asyncio
import time
from functools import partial
from typing import TYPE_CHECKING, Final

from bench.report import summary, verdicts
from bench.rounds import MIN_ROUNDS
from bench.targets import exit_code, settle
from bench.turns import cost, crowd, memory, metrics, rates, steps, trips, wakes, words

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from bench.targets import Finding, Result

_CANCELS: Final = 50
_KILLS: Final = 3
_TURNS: Final = 30
_QUICK_TURNS: Final = 10
_QUICK_ROUNDS: Final = 3
_RATE_ROUNDS: Final = 6
_AT_MOST: Final = 1_800.0
"""Seconds after which a run counts as hung, even on a busy machine."""


def _quick() -> list[Callable[[], Awaitable[Result]]]:
    """All measures with fewer rounds: finds large regressions, not small ones."""
    return [
        steps.per_step,
        partial(trips.whole_turns, _QUICK_TURNS),
        partial(trips.first_calls, _QUICK_TURNS),
        partial(cost.cost, "instant", _QUICK_ROUNDS),
        partial(cost.cost, "usual", _QUICK_ROUNDS),
        partial(metrics.cost, _QUICK_ROUNDS),
        *(partial(words.measure, load, _QUICK_ROUNDS) for load in words.LOADS),
        memory.long_streams,
        partial(rates.throughput, rates.QUICK_BACKLOG, 1, _QUICK_ROUNDS),
        partial(crowd.waiting, crowd.QUICK_WAITING),
        partial(crowd.appends_beside, _QUICK_ROUNDS),
        wakes.log_latency,
        partial(wakes.takeover, 1),
        partial(wakes.cancels, _CANCELS),
    ]


def _full() -> list[Callable[[], Awaitable[Result]]]:
    return [
        steps.per_step,
        partial(trips.whole_turns, _TURNS),
        partial(trips.first_calls, _TURNS),
        partial(cost.cost, "instant", MIN_ROUNDS),
        partial(settle, partial(cost.cost, "usual"), MIN_ROUNDS),
        partial(settle, metrics.cost, MIN_ROUNDS),
        *(partial(settle, partial(words.measure, load), MIN_ROUNDS) for load in words.LOADS),
        memory.long_streams,
        partial(rates.throughput, rates.BACKLOG, 2, _RATE_ROUNDS),
        partial(crowd.waiting, crowd.WAITING),
        partial(settle, crowd.appends_beside, MIN_ROUNDS),
        wakes.log_latency,
        partial(wakes.takeover, _KILLS),
        partial(wakes.cancels, _CANCELS),
    ]


async def main(*, quick: bool) -> int:
    """Run it; the exit code."""
    began = time.monotonic()
    findings: list[Finding] = []
    async with asyncio.timeout(_AT_MOST):
        for measure in _quick() if quick else _full():
            result = await measure()
            for table in result.tables:
                print(table, flush=True)
            findings += result.findings
    print(verdicts(findings))
    print(summary("turns", findings, time.monotonic() - began))
    return exit_code(findings)
