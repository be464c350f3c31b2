"""READ: readers in other processes disconnect and reconnect while workers are killed."""

from __future__ import annotations

import asyncio
import random
from concurrent.futures import ProcessPoolExecutor
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from typing import Final

from faults.harness import Guarantee, Outcome, Run
from faults.server.sse import ConnectionFrames, Frame, check_complete_log
from faults.turns.clients import PATIENCE, until_over
from faults.turns.processes import CONTEXT, Crew
from faults.turns.workspace import TurnProcess, Workspace, temporary_workspace, turn_process
from lango.core.turns.positions import Position
from lango.store.turns.log import LoggedEvent

WORKERS: Final = 2
READERS: Final = 2
PER_TURN: Final = 15  # the fewest connections of a reader to a turn
WORDS: Final = 120
DELAY: Final = 0.01
DEAD_AFTER: Final = 1.5
RECONNECTS_PER_KILL: Final = 25
_SPARED: Final = 3
_MOST_AT_ONCE: Final = 6
_BREAKS_OFF: Final = 0.2


@dataclass(slots=True)
class TurnReading:
    """The part of a turn that a reader has read."""

    connections: list[ConnectionFrames] = field(default_factory=list[ConnectionFrames])
    resets: int = 0
    wrong: list[str] = field(default_factory=list[str])

    @property
    def last(self) -> Position:
        """The furthest position it has reached."""
        return max((each.last for each in self.connections), key=_rank, default=Position())


def _rank(position: Position) -> tuple[int, int, int]:
    return position.number, position.epoch, position.length


async def _trial(run: Run) -> Outcome:
    outcome, drawn = Outcome(), random.Random(run.seed)
    with temporary_workspace(run.databases.postgres) as workspace:
        async with (
            turn_process(workspace, dead_after=DEAD_AFTER) as process,
            Crew(workspace, WORKERS, delay=DELAY, dead_after=DEAD_AFTER) as crew,
        ):
            texts_by_reader = await _submit(process, -(-run.count // (PER_TURN * READERS)))
            most = max(run.count // RECONNECTS_PER_KILL, 1)
            killing = asyncio.create_task(_kill(crew, process, drawn, most))
            try:
                readings = await _read_all(workspace, texts_by_reader, random.Random(run.seed))
            finally:
                killing.cancel()
                outcome.note(f"{await killing} workers killed")
    for each in readings:
        for wrong in each.wrong:
            outcome.fail(wrong)
    reconnects = sum(len(each.connections) for each in readings)
    resets = sum(each.resets for each in readings)
    outcome.note(f"{len(readings)} turns, {reconnects} reconnects, {resets} messages begun anew")
    parts = sum(connection.parts for each in readings for connection in each.connections)
    if parts:
        outcome.note(f"{parts} parts of text read before they were in the log")
    return outcome


async def _submit(process: TurnProcess, turns: int) -> list[dict[str, str]]:
    """Submit turns, one session per reader; return each reader's texts by turn id."""
    texts_by_reader: list[dict[str, str]] = [{} for _ in range(READERS)]
    for number in range(turns):
        for reader, texts in enumerate(texts_by_reader):
            text = " ".join(f"r{reader}n{number}w{word}" for word in range(WORDS))
            texts[await process.say(text, session=f"s{reader}")] = f"You said: {text}"
    return texts_by_reader


async def _kill(crew: Crew, process: TurnProcess, drawn: random.Random, most: int) -> int:
    """Kill workers at random times; return their number."""
    kills = 0
    with suppress(asyncio.CancelledError):
        while kills < most:
            await asyncio.sleep(drawn.uniform(0.5, 3.0))
            await until_over(process, _SPARED)
            await crew.replace(drawn.randrange(WORKERS))
            kills += 1
    return kills


async def _read_all(
    workspace: Workspace, texts_by_reader: list[dict[str, str]], drawn: random.Random
) -> list[TurnReading]:
    loop = asyncio.get_running_loop()
    with ProcessPoolExecutor(READERS, mp_context=CONTEXT) as pool:
        jobs = [
            loop.run_in_executor(pool, _read, workspace, turns, drawn.randrange(2**32))
            for turns in texts_by_reader
        ]
        return [reading for each in await asyncio.gather(*jobs) for reading in each]


def _read(workspace: Workspace, turns: dict[str, str], seed: int) -> list[TurnReading]:
    """The job of a process: read each turn to its end."""
    return asyncio.run(_follow_all(workspace, turns, random.Random(seed)))


async def _follow_all(
    workspace: Workspace, turns: dict[str, str], drawn: random.Random
) -> list[TurnReading]:
    readings: list[TurnReading] = []
    async with turn_process(workspace) as process:
        for turn, text in turns.items():
            readings.append(TurnReading())
            try:
                async with asyncio.timeout(PATIENCE):
                    await _follow(process, turn, drawn, readings[-1])
                    await _check(process, turn, readings[-1], text)
            except (AssertionError, TimeoutError) as wrong:
                readings[-1].wrong.append(f"turn {turn}: {wrong!r}")
    return readings


async def _follow(
    process: TurnProcess, turn: str, drawn: random.Random, reading: TurnReading
) -> None:
    """Reconnect at the last or any earlier position, until the end is read and often enough."""
    over = False
    while not over or len(reading.connections) < PER_TURN:
        before = [
            frame.position for connection in reading.connections for frame in connection.frames
        ]
        after = drawn.choice([reading.last, drawn.choice(before or [Position()])])
        reading.connections.append(connection := ConnectionFrames(after))
        async with aclosing(process.turns.events(turn, after=after)) as events:
            async for event in events:
                connection.frames.append(_frame(event))
                if len(connection.frames) == _MOST_AT_ONCE or drawn.random() < _BREAKS_OFF:
                    break
            else:
                over = True


def _frame(event: LoggedEvent) -> Frame:
    return Frame(event.number, event.type, event.data, event.length, event.epoch)


async def _check(process: TurnProcess, turn: str, reading: TurnReading, text: str) -> None:
    """Check each connection against the log, and the log against the text."""
    log = [_frame(event) for event in await process.read(turn)]
    reading.resets = check_complete_log(log, text)
    for connection in reading.connections:
        connection.check(log)


READ: Final = Guarantee(
    "READ",
    "readers that break off and come back while workers die: no gap, no repeat, the whole text",
    full=1_000,
    ci=100,
    run=lambda run: asyncio.run(_trial(run)),
)
