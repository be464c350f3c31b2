"""DEPLOY: new versions of agent and tables rolled out, and one rolled back, under load."""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections import Counter
from collections.abc import AsyncGenerator
from concurrent.futures import ProcessPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from faults.database.newer_schema import newer
from faults.harness import Guarantee, Outcome, Run
from faults.turns.agents import THEN, only_in
from faults.turns.clients import PATIENCE, Clients, check_turns, history
from faults.turns.processes import CONTEXT, Crew, WorkerProcess, work
from faults.turns.tally import Shape
from faults.turns.workspace import (
    TurnProcess,
    Workspace,
    check_log,
    temporary_workspace,
    turn_process,
)
from lango.errors import AgentChangedError
from lango.store.schema import migrate
from lango.store.schema.revisions import OURS, Revisions
from lango.store.schema.upgrade import LOCK_WAIT
from tests.support.databases import temporary_postgres

TURNS_PER_DEPLOY: Final = 100
SHAPE: Final = Shape(rounds=2)
LAST: Final = Shape()  # the rest of a turn after it was held
WORKERS: Final = 2
CLIENTS: Final = 6
SESSIONS: Final = 12
HELD: Final = 2
"""Turns of each kind that run when a deploy begins."""
DELAY: Final = 0.005
DEAD_AFTER: Final = 2.0
DRAIN: Final = 0.5


@dataclass(slots=True)
class OpenTurns:
    """Turns that a version began and cannot end: the next one has to."""

    bridges: dict[str, str] = field(default_factory=dict[str, str])
    """By name: turns that every version can resume."""
    strays: dict[str, str] = field(default_factory=dict[str, str])
    """By session: turns with an open call of a tool that the next version lacks."""


def _package(workspace: Workspace, version: int) -> Path:
    return workspace.folder / f"version-{version}"


def release(workspace: Workspace, version: int) -> None:
    """Write a version's migrations: once, before any process of that version reads them."""
    if version:
        newer(_package(workspace, version), version)


def carried_by(workspace: Workspace, version: int) -> Revisions:
    """The migrations of a version; the first version has those of today."""
    return Revisions(_package(workspace, version)) if version else OURS


def _run_version(workspace: Workspace, options: dict[str, Any], ready: Event) -> None:
    """The job of a process: a worker of one version."""
    migrate.carried = carried_by(workspace, int(options["version"]))
    work(workspace, options, ready)


def _upgrade(workspace: Workspace, version: int) -> str:
    """The job of a process: `lango db upgrade` of that version."""
    migrate.carried = carried_by(workspace, version)
    return asyncio.run(migrate.upgrade(workspace.url))


class Deploys:
    """Replaces versions of the workers on one database while clients continue."""

    def __init__(self, process: TurnProcess, drawn: random.Random, outcome: Outcome) -> None:
        self._process, self._drawn, self._outcome = process, drawn, outcome
        self._upgrades: list[float] = []
        self._crews: list[Crew] = []
        self._ended: Counter[str] = Counter()
        self._bridged = self._stray = 0

    @asynccontextmanager
    async def workers(self, versions: int) -> AsyncGenerator[None]:
        """Prepare the workers of each version, and start those of the first."""
        workspace = self._process.workspace
        async with AsyncExitStack() as ending:
            for version in range(versions):
                await asyncio.to_thread(release, workspace, version)
                options = {"version": str(version), "delay": DELAY, "drain": DRAIN}
                crew = Crew(workspace, 0, job=_run_version, dead_after=DEAD_AFTER, **options)
                self._crews.append(await ending.enter_async_context(crew))
            for _ in range(WORKERS):
                await self._hire(self._crews[0])
            yield

    async def _hire(self, crew: Crew) -> WorkerProcess:
        await asyncio.to_thread(crew.hire)
        await asyncio.to_thread(crew.members[-1].wait_until_ready)
        return crew.members[-1]

    async def deploy(self, old: int, new: int) -> None:
        """Upgrade the tables if the version is newer, then replace worker by worker."""
        held = await self._hold(old, f"{old}to{new}")
        if new > old:
            await self._upgrade(new)
        began = {str(worker.pid) for worker in self._crews[old].members}
        for number in self._drawn.sample([signal.SIGTERM, signal.SIGKILL], WORKERS):
            await self._hire(self._crews[new])  # for a while both versions run
            await self._end(self._crews[old].members.pop(0), number)
        for name in held.bridges:
            self._gate(name).touch()
        ended = {str(worker.pid) for worker in self._crews[new].members}
        await asyncio.gather(
            *(self._check_bridge(*each, began, ended) for each in held.bridges.items()),
            *(self._check_stray(*each) for each in held.strays.items()),
        )

    def _gate(self, name: str) -> Path:
        return self._process.workspace.folder / f"gate-{name}"

    async def _hold(self, version: int, name: str) -> OpenTurns:
        held, tool = OpenTurns(), only_in(str(version))
        for number in range(HELD):
            bridge, stray = f"b{name}n{number}", f"stray-{name}-{number}"
            message = f'call hold {{"name": "gate-{bridge}"}}{THEN}{LAST.message(bridge)}'
            held.bridges[bridge] = await self._process.say(message, session=f"bridge-{bridge}")
            message = f'call {tool} {{"name": "gate-{stray}"}}'
            held.strays[stray] = await self._process.say(message, session=stray)
        wanted = {f"held gate-{each}" for each in (*held.bridges, *held.strays)}
        await self._process.workspace.effects.wait(lambda words: wanted <= set(words))
        return held

    async def _upgrade(self, version: int) -> None:
        """Run two upgrades at once, while a reader holds a table for longer than they wait."""
        loop, workspace = asyncio.get_running_loop(), self._process.workspace
        with ProcessPoolExecutor(2, mp_context=CONTEXT) as pool:
            async with self._process.store.database.begin() as connection:
                await connection.execute(sa.text("select count(*) from messages"))
                began = time.monotonic()
                jobs = [loop.run_in_executor(pool, _upgrade, workspace, version) for _ in range(2)]
                await _stay(connection, 1.5 * LOCK_WAIT)
            revisions = await asyncio.gather(*jobs)
        self._upgrades.append(time.monotonic() - began)
        head = carried_by(workspace, version).head
        self._outcome.expect(revisions == [head] * 2, f"the upgrades ended at {revisions}")
        await self._process.store.check()  # as a server's readiness probe does

    async def _end(self, worker: WorkerProcess, number: signal.Signals) -> None:
        try:
            worker.send(number)
            code = await asyncio.to_thread(worker.join)
        finally:
            await asyncio.to_thread(worker.kill)
        wanted = 0 if number is signal.SIGTERM else -number
        self._outcome.expect(code == wanted, f"a worker ended with {code} after {number.name}")
        self._ended[number.name] += 1

    async def _check_bridge(
        self, name: str, turn_id: str, began: set[str], ended: set[str]
    ) -> None:
        """Check a turn that the old version began and the new one ended: each effect once."""
        async with asyncio.timeout(PATIENCE):
            turn = await self._process.turns.wait(turn_id)
        outcome, gate = self._outcome, f"gate-{name}"
        outcome.expect(turn.state == "completed", f"turn {name} is {turn.state}: {turn.error}")
        lines = [line for line in self._process.workspace.effects.lines() if line[-1] == gate]
        first, last = lines[0], lines[-1]
        begun = first[0] in began and first[2] == "held"
        over = last[0] in ended and last[2] == "released"
        outcome.expect(begun and over, f"{name} was begun by {first}, ended by {last}")
        self._bridged += begun and over
        check_log(await self._process.read(turn_id))
        got = Counter(await history(self._process, f"bridge-{name}"))
        wanted = LAST.story(name) + Counter([f"call {gate}", f"result {gate}"])
        outcome.expect(got == wanted, f"the history of {name} is {got}")
        marks = self._process.workspace.effects.words()
        (mark,) = LAST.marks(name)
        outcome.expect(marks.count(f"mark {mark}") == 1, f"the tool of {name} did not run once")

    async def _check_stray(self, session: str, turn_id: str) -> None:
        """Check a turn that failed as changed: its call has a result, and the session is usable."""
        async with asyncio.timeout(PATIENCE):
            turn = await self._process.turns.wait(turn_id)
        outcome, error_type = self._outcome, (turn.error or {}).get("type")
        right = (turn.state, error_type) == ("failed", AgentChangedError.__name__)
        outcome.expect(right, f"turn {session} is {turn.state}: {turn.error}")
        self._stray += right
        check_log(await self._process.read(turn_id))
        words = await history(self._process, session)
        closed = [word for word in words if word.endswith(f" gate-{session}")]
        wanted = [f"call gate-{session}", f"result gate-{session}"]
        outcome.expect(closed == wanted, f"the history of {session} is {words}")
        async with asyncio.timeout(PATIENCE):
            after = await self._process.turns.wait(
                await self._process.say("hello", session=session)
            )
        outcome.expect(after.state == "completed", f"{session} does not go on: {after.error}")

    def note_figures(self) -> None:
        """Add the figures to the outcome."""
        ended = ", ".join(f"{times} by {name}" for name, times in sorted(self._ended.items()))
        self._outcome.note(
            f"{len(self._upgrades)} deploys with an upgrade (the slowest {max(self._upgrades):.1f} "
            f"s) and 1 back, workers ended {ended}, {self._bridged} turns begun by one version and "
            f"ended by another, {self._stray} ended as {AgentChangedError.__name__}"
        )


async def _stay(connection: AsyncConnection, seconds: float) -> None:
    """Keep a transaction alive, which the server would end if it were idle."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        await connection.execute(sa.text("select 1"))
        await asyncio.sleep(0.2)


async def _trial(run: Run) -> Outcome:
    outcome, drawn = Outcome(), random.Random(run.seed)
    versions = max(run.count // TURNS_PER_DEPLOY, 1)
    # Its own database: no other test may see the newer tables.
    async with temporary_postgres(run.databases.postgres) as url:
        with temporary_workspace(url) as workspace:
            async with turn_process(workspace, dead_after=DEAD_AFTER) as process:
                deploys = Deploys(process, drawn, outcome)
                async with deploys.workers(versions + 1):
                    await _under_load(run, process, deploys, versions, outcome)
                    deploys.note_figures()
    return outcome


async def _under_load(
    run: Run, process: TurnProcess, deploys: Deploys, versions: int, outcome: Outcome
) -> None:
    """Deploy every version, and then roll back to the one before the last."""
    clients = Clients(process, SHAPE, outcome, sessions=SESSIONS)
    talking = asyncio.create_task(clients.run(CLIENTS, random.Random(run.seed)))
    try:
        for version in range(versions):
            await _until(clients, version * run.count // versions + CLIENTS)
            await deploys.deploy(version, version + 1)
        await _until(clients, run.count)
        await deploys.deploy(versions, versions - 1)
    finally:
        clients.stop()
        await talking
    outcome.note(str(await check_turns(process, clients.turns, SHAPE, outcome)))
    attempts = [(await process.turns.get(turn)).attempts for turn in clients.turns.values()]
    outcome.note(f"{sum(each > 1 for each in attempts)} of them resumed")


async def _until(clients: Clients, turns: int) -> None:
    """Wait until the clients have submitted this number of turns."""
    async with asyncio.timeout(PATIENCE):
        while len(clients.turns) < turns:  # noqa: ASYNC110 - no event to await
            await asyncio.sleep(0.05)


DEPLOY: Final = Guarantee(
    "DEPLOY",
    "new code and new tables rolled out under load, and code rolled back: no client notices",
    full=300,
    ci=30,
    run=lambda run: asyncio.run(_trial(run)),
)
