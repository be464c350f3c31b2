"""IDLE: a network that drops idle connections silently, and the turns after that."""

from __future__ import annotations

import asyncio
import random
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from faults.database.counted import counting_work, model_calls
from faults.database.proxy import Proxy
from faults.harness import Guarantee, Outcome, Run
from faults.turns.clients import check_turns
from faults.turns.processes import Crew
from faults.turns.tally import Shape
from faults.turns.workspace import TurnProcess, temporary_workspace, turn_process

SHAPE: Final = Shape()
FORGETS_AFTER: Final = 6.0
"""Seconds after which an idle connection is dropped; real networks take minutes."""
BUSY: Final = 16
"""Concurrent turns that open many connections."""
NEXT: Final = 10
"""Concurrent turns after the idle time."""
LATER_AT_MOST: Final = 3.0
"""Seconds that the idle time may add to the slowest start."""
AT_ONCE: Final = 2
_SILENCE: Final = (1.2, 1.6)
"""The idle time, as a multiple of the time after which connections are dropped."""


@dataclass(frozen=True, slots=True)
class IdleFindings:
    """The findings of one idle time."""

    usual: list[float]  # seconds from submit to the first model call, of turns before the idle time
    waits: list[float]  # the same of turns after the idle time
    forgotten: int
    turns: int


async def _run(run: Run) -> Outcome:
    outcome, drawn = Outcome(), random.Random(run.seed)
    room = asyncio.Semaphore(AT_ONCE)

    async def run_trial(number: int, seed: int) -> IdleFindings:
        async with room:
            trial_outcome = Outcome()
            found = await _try(run, random.Random(seed), trial_outcome)
            for failure in trial_outcome.failures:
                outcome.fail(f"silence {number}: {failure}")
            return found

    seeds = [drawn.randrange(2**32) for _ in range(run.count)]
    found = await asyncio.gather(*(run_trial(n, seed) for n, seed in enumerate(seeds)))
    usual = [wait for each in found for wait in each.usual]
    waits = [wait for each in found for wait in each.waits]
    outcome.note(
        f"{run.count} silences in which {sum(each.forgotten for each in found)} connections were "
        f"lost, {sum(each.turns for each in found)} turns; from submit to the first model call "
        f"{_median_and_slowest(usual)} before, {_median_and_slowest(waits)} after"
    )
    return outcome


async def _try(run: Run, drawn: random.Random, outcome: Outcome) -> IdleFindings:
    async with Proxy(run.databases.postgres, forget_idle_after=FORGETS_AFTER) as proxy:
        with temporary_workspace(proxy.url) as workspace:
            async with turn_process(workspace) as process, Crew(workspace, 1, job=counting_work):
                turns, _ = await _all_at_once(process, "busy", BUSY)
                before, usual = await _all_at_once(process, "before", NEXT)
                await asyncio.sleep(FORGETS_AFTER * drawn.uniform(*_SILENCE))
                after, waits = await _all_at_once(process, "after", NEXT)
                forgotten = proxy.forgotten
                turns |= before | after
                await check_turns(process, turns, SHAPE, outcome)
    outcome.expect(forgotten, "no connection was lost")
    later = max(waits, default=0.0) - max(usual, default=0.0)
    if run.timed:
        outcome.expect(later <= LATER_AT_MOST, f"a turn began {later:.1f} s later than usual")
    return IdleFindings(usual, waits, forgotten, len(turns))


async def _all_at_once(
    process: TurnProcess, kind: str, count: int
) -> tuple[dict[str, str], list[float]]:
    """Submit turns, each in its own session, and wait for all; return their ids and waits."""
    submitted = time.monotonic()

    async def submit_and_wait(name: str) -> tuple[str, str]:
        turn = await process.say(SHAPE.message(name), session=name)
        await process.turns.wait(turn)
        return name, turn

    turns = dict(await asyncio.gather(*(submit_and_wait(f"{kind}{n}") for n in range(count))))
    calls = model_calls(process.workspace.effects)
    return turns, [calls[name][0] - submitted for name in turns if name in calls]


def _median_and_slowest(waits: Sequence[float]) -> str:
    return f"{statistics.median(waits):.2f} s (median) and {max(waits):.2f} s (slowest)"


IDLE: Final = Guarantee(
    "IDLE",
    "idle connections lost without a word: the next turns start at once",
    full=20,
    ci=2,
    run=lambda run: asyncio.run(_run(run)),
)
