"""ORDER: many sessions on three workers: one turn at a time in each, in the order handed in."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Final

from faults.harness import Guarantee, Outcome, Run
from faults.turns.clients import until_over
from faults.turns.processes import Crew
from faults.turns.workspace import temporary_workspace, turn_process

WORKERS: Final = 3
DEAD_AFTER: Final = 30.0
PER_SESSION: Final = 7.5


async def _trial(run: Run) -> Outcome:
    outcome, drawn = Outcome(), random.Random(run.seed)
    sessions = max(round(run.count / PER_SESSION), 1)
    handed_in: dict[str, list[str]] = {}
    with temporary_workspace(run.databases.postgres) as workspace:
        async with (
            turn_process(workspace) as process,
            Crew(workspace, WORKERS, dead_after=DEAD_AFTER),
        ):
            for number in range(run.count):
                session = f"s{drawn.randrange(sessions)}"
                name = f"{session}-{number}"
                handed_in.setdefault(session, []).append(name)
                await process.say(f'call step {{"name": "{name}"}}', session=session)
            with suppress(TimeoutError):
                await until_over(process)
            lines = workspace.effects.lines()
    for wrong in wrongs(handed_in, [line[2:] for line in lines]):
        outcome.fail(wrong)
    used = len({line[0] for line in lines})
    outcome.note(f"{run.count} turns over {len(handed_in)} sessions on {used} workers")
    return outcome


def wrongs(handed_in: Mapping[str, Sequence[str]], marks: Iterable[Sequence[str]]) -> list[str]:
    """The turns that overlap another of their session, ran too early, too often or never."""
    wrong: list[str] = []
    running: dict[str, str] = {}
    begun: dict[str, list[str]] = {}
    for word, name in marks:
        session = name.partition("-")[0]
        if word == "end":
            running.pop(session, None)
            continue
        if session in running:
            wrong.append(f"{name} began while {running[session]} ran")
        running[session] = name
        begun.setdefault(session, []).append(name)
    for session, names in handed_in.items():
        got = begun.get(session, [])
        if got != list(names):
            wrong.append(f"the turns of {session} ran in the order {got}, not {list(names)}")
    return wrong


ORDER: Final = Guarantee(
    "ORDER",
    "the turns of a session one at a time and in order, in any worker",
    full=1_500,
    ci=150,
    run=lambda run: asyncio.run(_trial(run)),
)
