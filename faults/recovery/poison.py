"""POISON: a turn that kills every worker that runs it, among harmless turns."""

from __future__ import annotations

import asyncio
import random
import time
from typing import Final

from faults.harness import Guarantee, Outcome, Run
from faults.turns.processes import Crew
from faults.turns.workspace import TurnProcess, check_log, temporary_workspace, turn_process
from lango.core.turns.states import MAX_ATTEMPTS
from lango.errors import WorkerLostError
from lango.store.turns.rows import Turn

FLEET: Final = 2
INNOCENTS: Final = 10
DEAD_AFTER: Final = 4.0
"""Near the default of 5 s: on busy cores, a shorter time declares living workers dead."""
PATIENCE: Final = 180.0
AT_ONCE: Final = 5
"""Concurrent trials: each mostly waits for workers to count as dead."""
POISONED: Final = 'call die {"after": 0.3}'
CLOSED: Final = ["user", "assistant", "tool"]
ANSWERED: Final = [*CLOSED, "assistant"]


async def _trials(run: Run) -> Outcome:
    outcome, drawn = Outcome(), random.Random(run.seed)
    room = asyncio.Semaphore(AT_ONCE)
    urls = list(run.databases.each().items())

    async def trial(number: int, seed: int) -> tuple[int, int]:
        kind, url = urls[number % len(urls)]
        async with room:
            with temporary_workspace(url) as workspace:
                async with turn_process(workspace, dead_after=DEAD_AFTER) as process:
                    return await _trial(process, random.Random(seed), f"{kind} {number}", outcome)

    seeds = [drawn.randrange(2**32) for _ in range(run.count)]
    done = await asyncio.gather(*(trial(n, seed) for n, seed in enumerate(seeds)))
    deaths, resumed = sum(each[0] for each in done), sum(each[1] for each in done)
    outcome.note(
        f"{run.count} poisoned turns killed {deaths} workers and failed; {run.count * INNOCENTS} "
        f"others completed, {resumed} of them after a death or more"
    )
    return outcome


async def _trial(
    process: TurnProcess, drawn: random.Random, name: str, outcome: Outcome
) -> tuple[int, int]:
    """Return the dead workers, and the innocent turns that lost a worker."""
    async with Crew(process.workspace, FLEET, dead_after=DEAD_AFTER) as crew:
        innocent: list[str] = []
        for n in range(INNOCENTS):
            message = f'call drip {{"count": {drawn.randrange(100, 800)}}}'
            innocent.append(await process.say(message, session=f"innocent-{n}"))
        poisoned = await process.say(POISONED, session="poisoned")
        deaths = await _until_ended(process, crew, [poisoned, *innocent])
    turn = await process.turns.get(poisoned)
    error = (turn.error or {}).get("type")
    as_due = (turn.state, error) == ("failed", WorkerLostError.__name__)
    outcome.expect(
        as_due and turn.attempts >= MAX_ATTEMPTS,
        f"{name}: the poisoned turn is {turn.state}, {error}, after {turn.attempts} attempts",
    )
    roles = await _roles(process, turn)
    outcome.expect(roles == CLOSED, f"{name}: the history of the poisoned turn is {roles}")
    resumed = 0
    for turn_id in innocent:
        turn = await process.turns.get(turn_id)
        resumed += turn.attempts > 1
        well = turn.state == "completed"
        outcome.expect(well, f"{name}: an innocent turn is {turn.state}: {turn.error}")
        roles = await _roles(process, turn)
        outcome.expect(roles == ANSWERED, f"{name}: the history of an innocent turn is {roles}")
        if turn.ended is not None:
            check_log(await process.read(turn_id))
    return deaths, resumed


async def _until_ended(process: TurnProcess, crew: Crew, turns: list[str]) -> int:
    """Replace each worker that dies, until all turns are over; return the deaths."""
    deaths, until = 0, time.monotonic() + PATIENCE
    while time.monotonic() < until:
        deaths += await crew.mend()
        states = [(await process.turns.get(turn)).ended for turn in turns]
        if None not in states:
            break
        await asyncio.sleep(0.2)
    return deaths


async def _roles(process: TurnProcess, turn: Turn) -> list[str]:
    rows = await process.store.messages(turn.session, limit=100)
    return [row.role for row in rows if row.role != "control"]


POISON: Final = Guarantee(
    "POISON",
    "a turn that kills its workers fails alone; the turns beside it complete",
    full=50,
    ci=5,
    run=lambda run: asyncio.run(_trials(run)),
)
