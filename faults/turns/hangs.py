"""HANG: a worker whose event loop blocks, and one that dies with many running turns."""

from __future__ import annotations

import asyncio
import time
from typing import Final

from faults.harness import Guarantee, Outcome, Run
from faults.turns.clients import PATIENCE
from faults.turns.processes import Crew
from faults.turns.workspace import TurnProcess, check_log, temporary_workspace, turn_process
from lango.adk.sessions.service import SessionServiceAdapter

HANG_AFTER: Final = 2.0
DEAD_AFTER: Final = 2.0
TAKEN_OVER_WITHIN: Final = HANG_AFTER + 10.0
TURNS: Final = 20


async def _trial(run: Run) -> Outcome:
    outcome = Outcome()
    taken, resumed = list[float](), list[float]()
    for _ in range(run.count):
        for url in run.databases.each().values():
            with temporary_workspace(url) as workspace:
                async with turn_process(workspace, dead_after=DEAD_AFTER) as process:
                    taken.append(await _hang(process, outcome))
            with temporary_workspace(url) as workspace:
                async with turn_process(workspace, dead_after=DEAD_AFTER) as process:
                    resumed.append(await _die_with_many(process, outcome))
    if run.timed:
        outcome.expect(max(taken) < TAKEN_OVER_WITHIN, f"taken over after {max(taken):.1f} s")
    outcome.note(f"{len(taken)} hangs taken over, the slowest after {max(taken):.1f} s")
    slowest = max(resumed)
    outcome.note(f"{len(resumed)} kills with {TURNS} turns, the slowest over in {slowest:.1f} s")
    return outcome


async def _hang(process: TurnProcess, outcome: Outcome) -> float:
    """The seconds until another worker ran the turn of the blocked one."""
    workspace = process.workspace
    async with Crew(workspace, 1, dead_after=DEAD_AFTER, hang_after=HANG_AFTER):
        turn = await process.say('call block {"name": "b"}')
        await workspace.effects.wait(lambda words: "blocks b" in words)
        async with Crew(workspace, 1, dead_after=DEAD_AFTER):
            async with asyncio.timeout(PATIENCE):
                ended = await process.turns.wait(turn)
            before = await _stored(process, turn)
            (workspace.folder / "unblock").touch()
            await workspace.effects.wait(lambda words: words.count("unblocked b") == 2)
        # Only the blocked worker is left: once it has run this turn, it has done all earlier work.
        async with asyncio.timeout(PATIENCE):
            more = await process.say('call step {"name": "after"}', session="two")
            later = await process.turns.wait(more)
    outcome.expect((ended.state, ended.attempts) == ("completed", 2), f"the hung turn is {ended}")
    outcome.expect(later.state == "completed", f"after its hang the worker's turn is {later.state}")
    outcome.expect(await _stored(process, turn) == before, "a worker wrote after it had hung")
    began = {line[2]: float(line[1]) for line in workspace.effects.lines() if line[3:] == ["b"]}
    return began["passes"] - began["blocks"]


async def _stored(process: TurnProcess, turn: str) -> list[str]:
    """The stored events of a turn's session and log."""
    service = SessionServiceAdapter(process.store, token_budget=None)
    session = await service.get_session(
        app_name=process.workspace.app, user_id="user", session_id="default"
    )
    events = session.events if session else []
    return [*map(str, await process.read(turn)), *(event.model_dump_json() for event in events)]


async def _die_with_many(process: TurnProcess, outcome: Outcome) -> float:
    """The seconds until the turns of a dead worker were over."""
    async with Crew(process.workspace, 1, dead_after=DEAD_AFTER) as crew:
        message = 'call hold {"name": "go"}'
        turns = [await process.say(message, session=f"s{n}") for n in range(TURNS)]
        await process.workspace.effects.wait(lambda words: words.count("held go") == TURNS)
        await crew.replace(0)
        killed = time.monotonic()
        (process.workspace.folder / "go").touch()
        async with asyncio.timeout(PATIENCE):
            ended = [await process.turns.wait(turn) for turn in turns]
        took = time.monotonic() - killed
    for turn in ended:
        well = turn.state == "completed" and turn.attempts > 1
        outcome.expect(well, f"a dead worker's turn is {turn.state}, attempt {turn.attempts}")
        check_log(await process.read(turn.id))
    return took


HANG: Final = Guarantee(
    "HANG",
    "a hung worker is taken over and writes nothing when it wakes; a dead one's turns all end",
    full=5,
    ci=1,
    run=lambda run: asyncio.run(_trial(run)),
)
