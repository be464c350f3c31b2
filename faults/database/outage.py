"""OUTAGE: the database is away under load for a while: no turn fails, no tool runs twice."""

from __future__ import annotations

import asyncio
import random
import time
from dataclasses import dataclass
from typing import Final

from faults.database.counted import counting_work, model_calls
from faults.database.outages import OUTAGES, Outage
from faults.harness import Guarantee, Outcome, Run
from faults.turns.agents import PATIENCE, Effects
from faults.turns.clients import Clients, check_turns
from faults.turns.processes import Crew
from faults.turns.tally import Shape, Tally
from faults.turns.workspace import TurnProcess, temporary_workspace, turn_process
from lango.server.health import Health, readiness

_LASTING: Final = 1.0
SHAPE: Final = Shape(rounds=2, seconds=_LASTING)
WORKERS: Final = 2
CLIENTS: Final = 6
SESSIONS: Final = 24
"""Enough that clients rarely share one: the turns of a session wait for each other."""
DEAD_AFTER: Final = 5.0
AWAY: Final = (5, 20, 60)
AWAY_IN_CI: Final = (5,)
BACK_WITHIN: Final = 15.0
AT_ONCE: Final = 3
AT_ONCE_IN_CI: Final = 6
"""Concurrent trials: each mostly waits."""
_AT_WORK: Final = 3
"""The fewest tools that run when the outage begins."""
_GIVE_UP: Final = 90.0


@dataclass(frozen=True, slots=True)
class OutageTrial:
    """One outage."""

    kind: str
    seconds: int
    seed: int

    def __str__(self) -> str:
        return f"{self.kind} for {self.seconds} s"


@dataclass(frozen=True, slots=True)
class OutageFindings:
    """The findings of one outage."""

    trial: OutageTrial
    tally: Tally
    cut_tools: int  # tools that ran when the outage began
    resumed: int  # turns that another attempt ended
    back_after: float
    failures: list[str]


def trials_of(run: Run) -> list[OutageTrial]:
    """The trials of this part: each kind of outage for each duration, in rotation."""
    drawn = random.Random(run.seed)
    away = AWAY if run.timed else AWAY_IN_CI
    every = [(kind, seconds) for seconds in away for kind in OUTAGES]
    trials = [
        OutageTrial(*every[number % len(every)], drawn.randrange(2**32))
        for number in range(run.count)
    ]
    drawn.shuffle(trials)
    return run.part.pick(trials)


async def _run(run: Run) -> Outcome:
    outcome = Outcome()
    room = asyncio.Semaphore(AT_ONCE if run.timed else AT_ONCE_IN_CI)

    async def run_trial(trial: OutageTrial) -> OutageFindings:
        async with room:
            return await _try(trial, run)

    found = await asyncio.gather(*map(run_trial, trials_of(run)))
    for each in found:
        for failure in each.failures:
            outcome.fail(f"{each.trial} (seed {each.trial.seed}): {failure}")
    _note(found, outcome)
    return outcome


async def _try(trial: OutageTrial, run: Run) -> OutageFindings:
    drawn, outcome = random.Random(trial.seed), Outcome()
    async with OUTAGES[trial.kind](run.databases) as outage:
        with temporary_workspace(outage.url) as workspace:
            async with (
                turn_process(workspace, dead_after=DEAD_AFTER) as process,
                Crew(workspace, WORKERS, job=counting_work, dead_after=DEAD_AFTER) as crew,
            ):
                clients = Clients(process, SHAPE, outcome, sessions=SESSIONS, resend=True)
                talking = asyncio.create_task(clients.run(CLIENTS, drawn))
                cut = await _until_at_work(workspace.effects, drawn)
                outage.processes = [each.pid for each in crew.members]
                await _away(outage, trial.seconds, process, outcome)
                clients.stop()
                back_after = await _until_over(talking, run, outcome)
                if back_after >= _GIVE_UP:
                    outcome.fail(await _left_open(process, clients.turns))
                alive = all(each.is_alive for each in crew.members)
                outcome.expect(alive, "a worker ended")
                tally, resumed = Tally(len(clients.turns)), 0
                if back_after < _GIVE_UP:
                    tally = await check_turns(process, clients.turns, SHAPE, outcome)
                    resumed = await _check_model_calls(process, clients.turns, outcome)
    return OutageFindings(trial, tally, cut, resumed, back_after, outcome.failures)


async def _until_over(talking: asyncio.Task[None], run: Run, outcome: Outcome) -> float:
    """Wait until every client has read its turn to the end; return the seconds."""
    returned = time.monotonic()
    done, _ = await asyncio.wait([talking], timeout=_GIVE_UP)
    if not done:
        talking.cancel()
    await asyncio.gather(talking, return_exceptions=True)
    took = time.monotonic() - returned
    within = BACK_WITHIN if run.timed else _GIVE_UP
    outcome.expect(took < within, f"turns were not over {within:.0f} s after its return")
    return took


async def _left_open(process: TurnProcess, turns: dict[str, str]) -> str:
    """The open turns and their states; may be empty while readers still wait."""
    found = [await process.turns.get(turn_id) for turn_id in turns.values()]
    open_ = [
        f"{each.id} {each.state}, attempt {each.attempts}, event {each.last_event}"
        for each in found
        if each.ended is None
    ]
    return f"{len(open_)} of {len(found)} turns are open: {'; '.join(open_)}"


async def _away(outage: Outage, seconds: float, process: TurnProcess, outcome: Outcome) -> None:
    """Begin and end the outage; in between, readiness must report a failing store."""
    await outage.begin()
    store_health, _ = await asyncio.gather(
        _health_in_mid_outage(process, seconds), outage.last(seconds)
    )
    if outage.is_noticed:
        outcome.expect(store_health == "failing", f"readiness calls the store {store_health}")
    await outage.end()


async def _health_in_mid_outage(process: TurnProcess, seconds: float) -> str:
    """The store's health by the readiness probe in the middle of an outage."""
    await asyncio.sleep(seconds / 2)
    return (await readiness(Health(is_warm=True), process.store)).store


async def _check_model_calls(process: TurnProcess, turns: dict[str, str], outcome: Outcome) -> int:
    """Each model call was made once, plus at most one per retry; return the resumed turns."""
    model_calls_by_turn, resumed = model_calls(process.workspace.effects), 0
    for name, turn_id in turns.items():
        retries = (await process.turns.get(turn_id)).attempts - 1
        resumed += retries > 0
        calls, due = len(model_calls_by_turn.get(name, ())), SHAPE.rounds + 1
        right = due <= calls <= due + retries
        outcome.expect(right, f"turn {name} asked the model {calls} times, not {due} (+{retries})")
    return resumed


async def _until_at_work(effects: Effects, drawn: random.Random) -> int:
    """Let turns run for a random time, then until tools are running; return their number."""
    await asyncio.sleep(drawn.uniform(0.5, 2.0))
    async with asyncio.timeout(PATIENCE):
        while (at_work := _at_work(effects)) < _AT_WORK:  # noqa: ASYNC110 - of other processes
            await asyncio.sleep(0.02)
    return at_work


def _at_work(effects: Effects) -> int:
    """The number of running tools that are not about to end."""
    since = time.monotonic() - _LASTING * 0.7
    return sum(line[2] == "mark" and float(line[1]) > since for line in effects.lines())


def _note(found: list[OutageFindings], outcome: Outcome) -> None:
    for kind in OUTAGES:
        trials = [each for each in found if each.trial.kind == kind]
        if not trials:
            continue
        outcome.note(
            f"{kind}: {len(trials)} outages of {sum(each.trial.seconds for each in trials)} s, "
            f"{sum(each.cut_tools for each in trials)} tools at work when they began, "
            f"{sum(each.tally.turns for each in trials)} turns "
            f"({sum(each.resumed for each in trials)} resumed), all over after "
            f"{max(each.back_after for each in trials):.1f} s"
        )


OUTAGE: Final = Guarantee(
    "OUTAGE",
    "the database away for up to a minute: no turn fails, nothing twice, over soon after",
    full=60,
    ci=6,
    run=lambda run: asyncio.run(_run(run)),
    parts=3,
    picks=True,
)
