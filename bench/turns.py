"""The benchmark of durable turns: every measure in one run, each on databases of its own."""

from __future__ import annotations

import asyncio
import time
from functools import partial
from typing import TYPE_CHECKING, Final

from bench import (
    turn_cost,
    turn_crowd,
    turn_memory,
    turn_rates,
    turn_steps,
    turn_trips,
    turn_wakes,
    turn_words,
)
from bench.report import summary, verdicts
from bench.rounds import MIN_ROUNDS
from bench.targets import exit_code, settle

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
"""Seconds after which even a run on a crowded machine has lost its way."""


def _quick() -> list[Callable[[], Awaitable[Result]]]:
    """All of it, smaller: enough to see what has become slow, not to judge what is close."""
    return [
        turn_steps.per_step,
        partial(turn_trips.whole_turns, _QUICK_TURNS),
        partial(turn_trips.first_calls, _QUICK_TURNS),
        partial(turn_cost.cost, "instant", _QUICK_ROUNDS),
        partial(turn_cost.cost, "usual", _QUICK_ROUNDS),
        *(partial(turn_words.measure, load, _QUICK_ROUNDS) for load in turn_words.LOADS),
        turn_memory.long_streams,
        partial(turn_rates.throughput, turn_rates.QUICK_BACKLOG, 1, _QUICK_ROUNDS),
        partial(turn_crowd.waiting, turn_crowd.QUICK_WAITING),
        partial(turn_crowd.appends_beside, _QUICK_ROUNDS),
        turn_wakes.log_latency,
        partial(turn_wakes.takeover, 1),
        partial(turn_wakes.cancels, _CANCELS),
    ]


def _full() -> list[Callable[[], Awaitable[Result]]]:
    return [
        turn_steps.per_step,
        partial(turn_trips.whole_turns, _TURNS),
        partial(turn_trips.first_calls, _TURNS),
        partial(turn_cost.cost, "instant", MIN_ROUNDS),
        partial(settle, partial(turn_cost.cost, "usual"), MIN_ROUNDS),
        *(
            partial(settle, partial(turn_words.measure, load), MIN_ROUNDS)
            for load in turn_words.LOADS
        ),
        turn_memory.long_streams,
        partial(turn_rates.throughput, turn_rates.BACKLOG, 2, _RATE_ROUNDS),
        partial(turn_crowd.waiting, turn_crowd.WAITING),
        partial(settle, turn_crowd.appends_beside, MIN_ROUNDS),
        turn_wakes.log_latency,
        partial(turn_wakes.takeover, _KILLS),
        partial(turn_wakes.cancels, _CANCELS),
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
