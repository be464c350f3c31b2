"""DISPATCH: processes killed and frozen where an engine brings a turn to a worker, and ends it."""

from __future__ import annotations

import asyncio
import itertools
import random
import signal
from collections import Counter
from collections.abc import Sequence
from multiprocessing.synchronize import Event
from typing import Any, Final, Literal, NamedTuple

from faults.carriers.choose import chosen_engine_name
from faults.harness import Guarantee, Outcome, Run
from faults.turns.clients import PATIENCE, check_turns, until_over
from faults.turns.processes import Crew, Strike, WorkerProcess, keep_log
from faults.turns.tally import Shape
from faults.turns.workspace import TurnProcess, Workspace, temporary_workspace, turn_process
from lango.core import failpoints
from lango.turns import event_loop
from lango.turns.engine.choose import DATABASE

DEAD_AFTER: Final = 2.0
_SESSIONS: Final = 3
_TURNS: Final = 6
_SHORT: Final = Shape()
_LONG: Final = Shape(seconds=2.5)
"""Longer than the time between two heartbeats of an activity."""
_DISPATCH: Final = ("engine.dispatch", "engine.dispatched")
_CLAIM: Final = ("claim.before", "claim.after", "turn.closed")
_ACTIVITY: Final = ("activity.start", "activity.heartbeat", "activity.end")


class Trial(NamedTuple):
    """The process that is struck, and where."""

    struck: Literal["worker", "submitter"]
    strike: Strike

    @property
    def shape(self) -> Shape:
        """The turns of this trial."""
        return _LONG if self.strike.point == "activity.heartbeat" else _SHORT


def trials(engine: str) -> list[Trial]:
    """Every failpoint of an engine, each twice for kills and freezes."""
    points = (*_DISPATCH, *_CLAIM, *(() if engine == DATABASE else _ACTIVITY))
    modes: tuple[Literal["kill", "freeze"], ...] = ("kill", "freeze")
    strikes = itertools.starmap(Strike, itertools.product(points, (1, 2), modes))
    workers = [Trial("worker", strike) for strike in strikes]
    submitters = itertools.starmap(Strike, itertools.product(_DISPATCH, (1, 2), modes))
    return [*workers, *(Trial("submitter", strike) for strike in submitters)]


async def _run(run: Run) -> Outcome:
    outcome, struck = Outcome(), Counter[str]()
    all_trials = trials(chosen_engine_name())
    random.Random(run.seed).shuffle(all_trials)
    for number, trial in zip(range(run.count), itertools.cycle(all_trials), strict=False):
        # Each kill once on one database, then once on the other. A process that is frozen in a
        # transaction keeps SQLite's only write lock: no other one can write before it wakes.
        is_odd = (number + number // len(all_trials)) % 2
        is_sqlite = is_odd and trial.strike.mode == "kill"
        url = run.databases.sqlite if is_sqlite else run.databases.postgres
        with temporary_workspace(url) as workspace:
            async with turn_process(workspace, dead_after=DEAD_AFTER) as process:
                strikes = _strike_worker if trial.struck == "worker" else _strike_submitter
                is_struck = await strikes(process, trial, outcome)
        struck[f"{trial.struck} at {trial.strike.point}"] += is_struck
    outcome.expect(struck.total(), "no process was struck")
    outcome.note(f"{run.count} trials of {_TURNS} turns")
    outcome.note(", ".join(f"{point} × {times}" for point, times in sorted(struck.items())))
    return outcome


async def _strike_worker(process: TurnProcess, trial: Trial, outcome: Outcome) -> bool:
    """A worker is struck; another one takes over, and the struck one wakes if it was frozen."""
    workspace, shape = process.workspace, trial.shape
    async with Crew(workspace, 1, strike=trial.strike, dead_after=DEAD_AFTER) as crew:
        (doomed,) = crew.members
        turns = await submit(process, shape, range(_TURNS))
        await _until_struck_or_over(process, doomed)
        async with Crew(workspace, 1, dead_after=DEAD_AFTER):
            await check_turns(process, turns, shape, outcome)
        if doomed.is_struck and trial.strike.mode == "freeze":
            doomed.send(signal.SIGCONT)
            # It alone is left: when it has run these turns, it has done whatever else it would do.
            turns |= await submit(process, shape, range(_TURNS, _TURNS + _SESSIONS))
            await check_turns(process, turns, shape, outcome)
        return doomed.is_struck


async def _strike_submitter(process: TurnProcess, trial: Trial, outcome: Outcome) -> bool:
    """A process is struck that submits turns; its client submits them again, under their keys."""
    workspace, shape = process.workspace, trial.shape
    async with Crew(workspace, 1, dead_after=DEAD_AFTER):
        async with Crew(workspace, 1, job=_submit_all, strike=trial.strike) as crew:
            (doomed,) = crew.members
            await _until_struck(doomed)
            await until_over(process)  # what was accepted, although its dispatch may be lost
            turns = await submit(process, shape, range(_TURNS))
            if doomed.is_struck and trial.strike.mode == "freeze":
                doomed.send(signal.SIGCONT)
            await asyncio.to_thread(doomed.join)
            is_struck = doomed.is_struck
        await check_turns(process, turns, shape, outcome)
    return is_struck


async def submit(process: TurnProcess, shape: Shape, numbers: Sequence[int]) -> dict[str, str]:
    """Submit turns of some sessions; again with the same keys they are the same turns."""
    sessions = {f"t{number}": f"s{number % _SESSIONS}" for number in numbers}
    return {
        name: await process.say(shape.message(name), session=session, idempotency_key=name)
        for name, session in sessions.items()
    }


async def _until_struck(doomed: WorkerProcess) -> None:
    """Wait until a process is struck, or has ended."""
    async with asyncio.timeout(PATIENCE):
        while not doomed.is_struck and doomed.is_alive:  # noqa: ASYNC110 - of a process
            await asyncio.sleep(0.01)


async def _until_struck_or_over(process: TurnProcess, doomed: WorkerProcess) -> None:
    """Wait until a worker is struck, or all turns are over: it did not pass its failpoint."""
    waits = [asyncio.create_task(_until_struck(doomed)), asyncio.create_task(until_over(process))]
    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    for wait in waits:
        wait.cancel()
    await asyncio.gather(*waits, return_exceptions=True)


def _submit_all(workspace: Workspace, options: dict[str, Any], ready: Event) -> None:
    """The job of a process: submit all turns."""
    keep_log(workspace)
    failpoints.armed = options["strike"].armed(workspace)
    event_loop.run(_submit(workspace, ready))


async def _submit(workspace: Workspace, ready: Event) -> None:
    async with turn_process(workspace, dead_after=DEAD_AFTER) as process:
        ready.set()
        await submit(process, _SHORT, range(_TURNS))


DISPATCH: Final = Guarantee(
    "DISPATCH",
    "processes killed and frozen at dispatch, claim, heartbeat, end: each turn ends, nothing twice",
    full=200,
    ci=12,
    run=lambda run: asyncio.run(_run(run)),
)
