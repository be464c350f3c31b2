"""CHATS: two processes on one SQLite file, each with its own turns and a worker for all turns."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from multiprocessing.synchronize import Event as Ready
from typing import Any, Final

from faults.harness import Guarantee, Outcome, Run
from faults.turns.agents import Effects, loaded
from faults.turns.clients import PATIENCE, check_turns, until_over
from faults.turns.processes import Crew, keep_log
from faults.turns.tally import Shape
from faults.turns.workspace import TurnProcess, Workspace, temporary_workspace, turn_process
from lango.core.turns.events import Publish, TurnEvent
from lango.store.turns.rows import Claim
from lango.turns.attempt import LoadedApp
from lango.turns.worker import TurnWorker

SHAPE: Final = Shape(rounds=2)
NAMES: Final = ("a", "b")
DEAD_AFTER: Final = 5.0
DELAY: Final = 0.01
TURNS_PER_KILL: Final = 4
_SPARED: Final = 3


@dataclass(frozen=True, slots=True)
class Watched:
    """An app that records which process begins which attempt of a turn."""

    app: LoadedApp
    attempts: Effects

    @property
    def fingerprint(self) -> str:
        """That of the app."""
        return self.app.fingerprint

    @property
    def remembers(self) -> bool:
        """As the app does."""
        return self.app.remembers

    def run(
        self, claim: Claim, *, abort: asyncio.Event, publish: Publish
    ) -> AsyncGenerator[TurnEvent]:
        """Run the app."""
        self.attempts.add(claim.turn.id, claim.turn.attempts)
        return self.app.run(claim, abort=abort, publish=publish)


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt of a turn: its number, its process and its time."""

    process: str
    at: float
    turn: str
    number: int


def _attempts(workspace: Workspace) -> Effects:
    return Effects(workspace.folder / "attempts")


async def _trial(run: Run) -> Outcome:
    outcome, drawn = Outcome(), random.Random(run.seed)
    with temporary_workspace(run.databases.sqlite) as workspace:
        options: dict[str, Any] = {"job": _chat, "turns": run.count}
        async with (
            turn_process(workspace, dead_after=DEAD_AFTER) as process,
            Crew(workspace, 1, me="a", **options) as first,
            Crew(workspace, 1, me="b", **options) as second,
        ):
            killed = await _kill((first, second), process, drawn, run.count, workspace)
            names = [f"{me}n{number}" for me in NAMES for number in range(run.count)]
            turns = {name: await _submit(process, name) for name in names}
            tally = await check_turns(process, turns, SHAPE, outcome)
        began = [
            Attempt(words[0], float(words[1]), words[2], int(words[3]))
            for words in _attempts(workspace).lines()
        ]
    for wrong in stolen(began, killed):
        outcome.fail(wrong)
    resumed = sum(each.number > 1 for each in began)
    outcome.note(f"{tally}, {len(killed)} kills, {resumed} resumed, none stolen")
    return outcome


async def _kill(
    crews: Sequence[Crew],
    process: TurnProcess,
    drawn: random.Random,
    count: int,
    workspace: Workspace,
) -> dict[str, float]:
    """Kill and restart either process while both run; return the times of the kills."""
    killed: dict[str, float] = {}
    done = [workspace.folder / f"done-{me}" for me in NAMES]
    for _ in range(max(len(NAMES) * count // TURNS_PER_KILL, 2)):
        await asyncio.sleep(drawn.uniform(0.2, 2.0))
        await until_over(process, _SPARED)
        if all(mark.exists() for mark in done):
            break
        crew = drawn.choice(crews)
        doomed = str(crew.members[0].pid)
        killed[doomed] = time.monotonic()
        await crew.replace(0)
    async with asyncio.timeout(PATIENCE):
        while not all(mark.exists() for mark in done):  # noqa: ASYNC110 - of other processes
            await asyncio.sleep(0.1)
    return killed


def stolen(began: Sequence[Attempt], killed: dict[str, float]) -> list[str]:
    """Attempts of turns whose previous process was alive.

    One that was killed between its claim and its first word is not in the list: some other process
    must then have been killed.
    """
    wrong: list[str] = []
    for attempt in began:
        if attempt.number == 1:
            continue
        turn, number = attempt.turn, attempt.number - 1
        owners = [each.process for each in began if (each.turn, each.number) == (turn, number)]
        others = owners or [each for each in killed if each != attempt.process]
        if not any(killed.get(owner, attempt.at) < attempt.at for owner in others):
            wrong.append(f"turn {turn} was taken from {owners or 'no process'} without a kill")
    return wrong


async def _submit(process: TurnProcess, name: str) -> str:
    """Submit a turn (idempotent by its name)."""
    return await process.say(SHAPE.message(name), session=name[0], idempotency_key=name)


def _chat(workspace: Workspace, options: dict[str, Any], ready: Ready) -> None:
    keep_log(workspace)
    asyncio.run(_talk(workspace, options, ready))


async def _talk(workspace: Workspace, options: dict[str, Any], ready: Ready) -> None:
    """Submit the turns one by one from the first; those submitted before a kill are found again."""
    me = options["me"]
    async with turn_process(workspace, dead_after=DEAD_AFTER) as process:
        apps = loaded(process.store, workspace.app, workspace.effects, DELAY)
        watched = {name: Watched(app, _attempts(workspace)) for name, app in apps.items()}
        async with TurnWorker(process.store, process.engine, watched):
            ready.set()
            for number in range(options["turns"]):
                await process.turns.wait(await _submit(process, f"{me}n{number}"))
            (workspace.folder / f"done-{me}").touch()
            await asyncio.Event().wait()  # stay alive to resume the other's turns


CHATS: Final = Guarantee(
    "CHATS",
    "two processes with a worker each on one SQLite file: nothing stolen from one that lives",
    full=50,
    ci=8,
    run=lambda run: asyncio.run(_trial(run)),
)
