"""HANG: a worker whose event loop blocks, and one that dies with many running turns."""

from __future__ import annotations

import asyncio
import time
from typing import Final

from faults.harness import Guarantee, Outcome, Run
from faults.turns.clients import PATIENCE
from faults.turns.place import Process, check_log, process, temporary_place
from faults.turns.processes import Crew
from lango.adk.sessions.service import SessionServiceAdapter

HANG_AFTER: Final = 2.0
DEAD_AFTER: Final = 2.0
TAKEN_OVER_WITHIN: Final = HANG_AFTER + 10.0
TURNS: Final = 20


async def _trial(run: Run) -> Outcome:
    outcome = Outcome()
    taken, resumed = list[float](), list[float]()
    for _ in range(run.count):
        for url in run.places.each().values():
            with temporary_place(url) as place:
                async with process(place, dead_after=DEAD_AFTER) as here:
                    taken.append(await _hang(here, outcome))
            with temporary_place(url) as place:
                async with process(place, dead_after=DEAD_AFTER) as here:
                    resumed.append(await _die_with_many(here, outcome))
    if run.timed:
        outcome.expect(max(taken) < TAKEN_OVER_WITHIN, f"taken over after {max(taken):.1f} s")
    outcome.note(f"{len(taken)} hangs taken over, the slowest after {max(taken):.1f} s")
    slowest = max(resumed)
    outcome.note(f"{len(resumed)} kills with {TURNS} turns, the slowest over in {slowest:.1f} s")
    return outcome


async def _hang(here: Process, outcome: Outcome) -> float:
    """The seconds until another worker ran the turn of the blocked one."""
    place = here.place
    async with Crew(place, 1, dead_after=DEAD_AFTER, hang_after=HANG_AFTER):
        turn = await here.say('call block {"name": "b"}')
        await place.effects.wait(lambda words: "blocks b" in words)
        async with Crew(place, 1, dead_after=DEAD_AFTER):
            async with asyncio.timeout(PATIENCE):
                ended = await here.turns.wait(turn)
            before = await _stored(here, turn)
            (place.folder / "unblock").touch()
            await place.effects.wait(lambda words: words.count("unblocked b") == 2)
        # Only the blocked worker is left: once it has run this turn, it has done all earlier work.
        async with asyncio.timeout(PATIENCE):
            more = await here.say('call step {"name": "after"}', session="two")
            later = await here.turns.wait(more)
    outcome.expect((ended.state, ended.attempts) == ("completed", 2), f"the hung turn is {ended}")
    outcome.expect(later.state == "completed", f"after its hang the worker's turn is {later.state}")
    outcome.expect(await _stored(here, turn) == before, "a worker wrote after it had hung")
    began = {line[2]: float(line[1]) for line in place.effects.lines() if line[3:] == ["b"]}
    return began["passes"] - began["blocks"]


async def _stored(here: Process, turn: str) -> list[str]:
    """The stored events of a turn's session and log."""
    service = SessionServiceAdapter(here.store, token_budget=None)
    session = await service.get_session(
        app_name=here.place.app, user_id="user", session_id="default"
    )
    events = session.events if session else []
    return [*map(str, await here.read(turn)), *(event.model_dump_json() for event in events)]


async def _die_with_many(here: Process, outcome: Outcome) -> float:
    """The seconds until the turns of a dead worker were over."""
    async with Crew(here.place, 1, dead_after=DEAD_AFTER) as crew:
        message = 'call hold {"name": "go"}'
        turns = [await here.say(message, session=f"s{n}") for n in range(TURNS)]
        await here.place.effects.wait(lambda words: words.count("held go") == TURNS)
        await crew.replace(0)
        killed = time.monotonic()
        (here.place.folder / "go").touch()
        async with asyncio.timeout(PATIENCE):
            ended = [await here.turns.wait(turn) for turn in turns]
        took = time.monotonic() - killed
    for turn in ended:
        well = turn.state == "completed" and turn.attempts > 1
        outcome.expect(well, f"a dead worker's turn is {turn.state}, attempt {turn.attempts}")
        check_log(await here.read(turn.id))
    return took


HANG: Final = Guarantee(
    "HANG",
    "a hung worker is taken over and writes nothing when it wakes; a dead one's turns all end",
    full=5,
    ci=1,
    run=lambda run: asyncio.run(_trial(run)),
)
