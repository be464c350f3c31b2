"""MEMORY: turns of many sessions complete while their workers are killed, also as they close one.

Each session's texts must be in its user's memory exactly once: the transaction that closes a turn
writes them, and a resumed turn is closed by another worker.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Iterator
from multiprocessing.synchronize import Event
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from faults.harness import Guarantee, Outcome, Run
from faults.turns.agents import loaded
from faults.turns.processes import Crew, Strike, arm, keep_log, run_until_stopped
from faults.turns.workspace import TurnProcess, Workspace, temporary_workspace, turn_process
from lango.errors import WorkerLostError
from lango.store.memory.store import SqlMemoryStore
from lango.store.schema.tables import memories, messages, sessions
from lango.store.sessions.entries import SessionKey
from lango.turns import event_loop
from lango.turns.worker import TurnWorker, WorkerOptions

WORKERS: Final = 2
LANES: Final = 8
"""Turns that are submitted and not yet ended, at most."""
USERS: Final = 50
DEAD_AFTER: Final = 2.0
DRAIN: Final = 5.0
KILL_EVERY: Final = (2, 12)
"""Turns that end between two kills: by the clock, a slow machine would kill workers that start."""
LOOK_EVERY: Final = 0.05
DEATHS: Final = (None, None, Strike("turn.closing"), Strike("turn.closed"))
"""Where a new worker dies by itself, before it is killed."""
PATIENCE: Final = 180.0
_SEARCHED: Final = 200
"""Sessions of a run whose texts are also searched for."""


def work(workspace: Workspace, options: dict[str, Any], ready: Event) -> None:
    """Run turns with memory until SIGTERM."""
    keep_log(workspace)
    arm(workspace, options)
    event_loop.run(_work(workspace, ready))


async def _work(workspace: Workspace, ready: Event) -> None:
    async with turn_process(workspace, dead_after=DEAD_AFTER) as process:
        apps = loaded(process.store, workspace.app, workspace.effects)
        apps[workspace.app].remembers = True
        await run_until_stopped(
            TurnWorker(process.store, process.engine, apps, WorkerOptions()), ready, DRAIN
        )


def _key(app: str, number: int) -> SessionKey:
    return SessionKey("", app, f"user{number % USERS}", f"s{number}")


def _word(number: int) -> str:
    return f"word{number}"


class _Trial:
    def __init__(self, process: TurnProcess, crew: Crew, drawn: random.Random) -> None:
        self.process, self.crew, self.drawn = process, crew, drawn
        self.kills: Counter[str] = Counter()
        self.states: dict[int, str] = {}
        self.unexpected: list[str] = []
        self.resumed = 0
        self._next_kill = drawn.randint(*KILL_EVERY)
        self._hand = asyncio.Lock()  # one change of the crew at a time
        self._is_over = False

    async def run(self, count: int) -> None:
        """Run a turn in each of `count` sessions, and kill workers meanwhile."""
        mending = asyncio.create_task(self._mend())
        try:
            numbers = iter(range(count))
            await asyncio.gather(*(self._lane(numbers) for _ in range(LANES)))
        finally:
            self._is_over = True
            await mending

    async def _lane(self, numbers: Iterator[int]) -> None:
        for number in numbers:
            key = _key(self.process.workspace.app, number)
            message = f'call mark {{"name": "{_word(number)}"}}'
            turn = await self.process.say(message, user=key.user_id, session=key.session_id)
            async with asyncio.timeout(PATIENCE):
                ended = await self.process.turns.wait(turn)
            self.states[number] = ended.state
            self.resumed += ended.attempts > 1
            is_worn_out = (ended.error or {}).get("type") == WorkerLostError.__name__
            if ended.state != "completed" and not is_worn_out:
                self.unexpected.append(f"s{number} is {ended.state}: {ended.error}")
            await self._strike()

    async def _strike(self) -> None:
        """Kill a worker, if enough turns have ended; the next one may die while it closes one."""
        if len(self.states) < self._next_kill:
            return
        self._next_kill = len(self.states) + self.drawn.randint(*KILL_EVERY)
        number, strike = self.drawn.randrange(WORKERS), self.drawn.choice(DEATHS)
        async with self._hand:
            await self.crew.replace(number, strike=strike)
        self.kills["by SIGKILL"] += 1

    async def _mend(self) -> None:
        """Replace workers that died at a failpoint."""
        while not self._is_over:
            async with self._hand:
                self.kills["while closing"] += await self.crew.mend()
            await asyncio.sleep(LOOK_EVERY)


async def _entries(
    connection: AsyncConnection, app: str
) -> tuple[dict[int, Counter[str]], dict[int, Counter[str]]]:
    """The texts of each session: as its messages have them, and as memory has them."""
    is_said = messages.c.role.in_(("user", "assistant")) & (messages.c.content != "")
    said = sa.select(sessions.c.pk, messages.c.content).join_from(
        sessions, messages, messages.c.session_pk == sessions.c.pk
    )
    remembered = sa.select(memories.c.session_pk, memories.c.text)
    found: list[dict[int, Counter[str]]] = []
    for statement in (
        said.where(sessions.c.app_name == app, is_said),
        remembered.where(memories.c.app_name == app),
    ):
        texts: dict[int, Counter[str]] = {}
        for pk, text in await connection.execute(statement):
            texts.setdefault(pk, Counter())[text] += 1
        found.append(texts)
    return found[0], found[1]


async def _names(connection: AsyncConnection, app: str) -> dict[str, int]:
    rows = await connection.execute(
        sa.select(sessions.c.id, sessions.c.pk).where(sessions.c.app_name == app)
    )
    return {row.id: row.pk for row in rows}


async def _check(trial: _Trial, outcome: Outcome) -> None:
    """Check that memory has the texts of each completed turn once, and of no other turn."""
    for line in trial.unexpected:
        outcome.fail(line)
    database, app = trial.process.store.database, trial.process.workspace.app
    said, remembered = await database.read(_entries, app)
    names = await database.read(_names, app)
    for number, state in trial.states.items():
        pk = names[f"s{number}"]
        expected = said.get(pk, Counter[str]()) if state == "completed" else Counter[str]()
        texts = remembered.pop(pk, Counter[str]())
        outcome.expect(texts == expected, f"s{number} ({state}): {texts}, not {expected}")
        if state == "completed":
            outcome.expect(len(expected) == 2, f"s{number} said {expected}")
            twice = [text for text, times in texts.items() if times > 1]
            outcome.expect(not twice, f"s{number} has twice {twice}")
    outcome.expect(not remembered, f"memory of no session: {len(remembered)}")


async def _check_search(trial: _Trial, outcome: Outcome) -> None:
    """Check that a search finds what memory has: the index must not differ from the table."""
    store, app = SqlMemoryStore(trial.process.store.database), trial.process.workspace.app
    completed = [number for number, state in trial.states.items() if state == "completed"]
    for number in trial.drawn.sample(completed, min(_SEARCHED, len(completed))):
        found = await store.search(_key(app, number), _word(number), 10)
        ids = {entry.session_id for entry in found}
        outcome.expect(ids == {f"s{number}"}, f"a search for s{number} found {ids}")


async def _trial(name: str, url: str, run: Run, count: int, outcome: Outcome) -> None:
    began = time.monotonic()
    with temporary_workspace(url) as workspace:
        async with turn_process(workspace, dead_after=DEAD_AFTER) as process:
            async with Crew(workspace, WORKERS, job=work) as crew:
                trial = _Trial(process, crew, random.Random(f"{run.seed} {name}"))
                await trial.run(count)
                await crew.dismiss()
            await _check(trial, outcome)
            await _check_search(trial, outcome)
    states = Counter(trial.states.values())
    ended = ", ".join(f"{times} {state}" for state, times in sorted(states.items()))
    kills = ", ".join(f"{times} {how}" for how, times in sorted(trial.kills.items()))
    seconds = time.monotonic() - began
    outcome.note(
        f"{name}: {count} sessions ({ended}), {trial.resumed} turns resumed, deaths of workers: "
        f"{kills}; {seconds:.0f} s"
    )
    outcome.expect(states["completed"] >= 0.9 * count, f"{name}: only {ended}")


async def _both(run: Run) -> Outcome:
    outcome = Outcome()
    for workspace, (name, url) in enumerate(run.databases.each().items()):
        await _trial(name, url, run, (run.count + workspace) // 2, outcome)
    return outcome


MEMORY: Final = Guarantee(
    "MEMORY",
    "turns completed while workers die: each text is in memory once, and is found",
    full=10_000,
    ci=100,
    run=lambda run: asyncio.run(_both(run)),
    parts=8,
)
