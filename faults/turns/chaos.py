"""CHAOS: workers killed and frozen at random, compared with google-adk alone."""

from __future__ import annotations

import asyncio
import random
import signal
from collections import Counter
from contextlib import suppress
from typing import Final

from faults.harness import Guarantee, Outcome, Run
from faults.turns.adk_alone import Load, adk_alone
from faults.turns.clients import check_turns, until_over
from faults.turns.processes import Crew
from faults.turns.tally import Shape
from faults.turns.workspace import TurnProcess, temporary_workspace, turn_process

LOAD: Final = Load(
    shape=Shape(rounds=2, calls=2),  # three model calls and four tool calls
    per_session=10,
    processes=3,
    delay=0.005,
    pauses=(0.3, 1.5),
    turns_per_kill=10,  # and as many freezes
)
DEAD_AFTER: Final = 2.0
_SPARED: Final = 3
"""A turn with this many attempts may end before the next fault."""
FULL: Final = 600


async def _trial(run: Run) -> Outcome:
    outcome, drawn = Outcome(), random.Random(run.seed)
    with temporary_workspace(run.databases.postgres) as workspace:
        async with (
            turn_process(workspace, dead_after=DEAD_AFTER) as process,
            Crew(workspace, LOAD.processes, delay=LOAD.delay, dead_after=DEAD_AFTER) as crew,
        ):
            turns = {
                name: await process.say(LOAD.shape.message(name), session=session)
                for name, session in LOAD.names(run.count).items()
            }
            most = max(2 * run.count // LOAD.turns_per_kill, 1)
            striking = asyncio.create_task(_strike(crew, process, drawn, most))
            try:
                with suppress(TimeoutError):  # the checks find a turn that never ends
                    await until_over(process)
            finally:
                striking.cancel()
                blows = await striking
            outcome.note(f"{blows['kills']} kills, {blows['freezes']} freezes")
            tally = await check_turns(process, turns, LOAD.shape, outcome)
            attempts = [(await process.turns.get(turn)).attempts for turn in turns.values()]
    outcome.note(f"lango: {tally}, {sum(each > 1 for each in attempts)} resumed")
    if run.count >= FULL:
        alone = await adk_alone(run, LOAD, blows["kills"])  # as many kills as lango's workers had
        outcome.note(f"google-adk alone: {alone}")
    return outcome


async def _strike(
    crew: Crew, process: TurnProcess, drawn: random.Random, most: int
) -> Counter[str]:
    """Repeatedly kill or freeze a worker; return how often each."""
    blows: Counter[str] = Counter()
    with suppress(asyncio.CancelledError):
        while blows.total() < most:
            await asyncio.sleep(drawn.uniform(*LOAD.pauses))
            await until_over(process, _SPARED)
            number, kills = drawn.randrange(LOAD.processes), drawn.random() < 0.5
            blows["kills" if kills else "freezes"] += 1
            if kills:
                await crew.replace(number)
            else:
                await _freeze(crew, number, drawn.uniform(0.2, 2 * DEAD_AFTER))
    return blows


async def _freeze(crew: Crew, number: int, seconds: float) -> None:
    """Freeze a worker for shorter or longer than its dead time."""
    frozen = crew.members[number]
    frozen.send(signal.SIGSTOP)
    try:
        await asyncio.sleep(seconds)
    finally:
        frozen.send(signal.SIGCONT)


CHAOS: Final = Guarantee(
    "CHAOS",
    "three workers killed and frozen at random: each turn ends, nothing twice",
    full=FULL,
    ci=30,
    run=lambda run: asyncio.run(_trial(run)),
)
