"""G2, G6 and G10: turns on real worker processes that are killed, overloaded and stopped."""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from functools import partial
from typing import Final

from faults.harness import Guarantee, Outcome, Run
from faults.turns.processes import Crew, WorkerProcess
from faults.turns.workspace import END_TYPES, TurnProcess, temporary_workspace, turn_process
from lango.core.turns.states import MAX_ATTEMPTS
from lango.errors import SessionBusyError, WorkerLostError
from lango.store.turns.rows import Turn

DEAD_AFTER: Final = 2.0
DRAIN: Final = 1.0
SLACK: Final = 5.0
"""Seconds in which a worker exits after that."""
SLACK_CI: Final = 40.0  # as long as a machine may stall, and less than a test waits for an exit
SESSIONS: Final = 8
PATIENCE: Final = 120.0
MESSAGE: Final = 'call mark {{"name": "{name}"}}'
ENDLESS: Final = 'call hold {"name": "never"}'
"""Ends only by losing its worker too often."""
ENDLESS_EVERY: Final = 20

_NO_PATIENCE: Final = 1.0
"""Seconds to wait for a turn when another one has not ended in time."""
Trial = Callable[[TurnProcess, random.Random, int, Outcome], Awaitable[None]]


def _on_both(trial: Trial) -> Callable[[Run], Outcome]:
    """The trial on each database, half of the count each."""

    async def on_each(run: Run) -> Outcome:
        outcome, drawn = Outcome(), random.Random(run.seed)
        for url in run.databases.each().values():
            with temporary_workspace(url) as workspace:
                async with turn_process(workspace, dead_after=DEAD_AFTER) as process:
                    await trial(process, drawn, max(run.count // 2, 1), outcome)
        return outcome

    return lambda run: asyncio.run(on_each(run))


async def _ended(
    process: TurnProcess, turns: dict[str, str], outcome: Outcome, *, may_wear_out: bool = False
) -> list[Turn]:
    """Every turn ends, its history and its log are right, and its tool ran once at most.

    Those that wore out: they lost their worker as often as a turn may.
    """
    worn: list[Turn] = []
    patience = PATIENCE
    for name, turn_id in turns.items():
        try:
            async with asyncio.timeout(patience):
                turn = await process.turns.wait(turn_id)
        except TimeoutError:
            patience = _NO_PATIENCE
            outcome.fail(f"turn {name} is still {(await process.turns.get(turn_id)).state}")
            continue
        if may_wear_out and _is_worn_out(turn):
            worn.append(turn)
        else:
            outcome.expect(turn.state == "completed", f"turn {name} is {turn.state}: {turn.error}")
        events = await process.read(turn_id)
        numbers = [event.number for event in events]
        outcome.expect(numbers == list(range(1, len(events) + 1)), f"the log of {name} has a gap")
        ends = [event.type for event in events if event.type in END_TYPES]
        outcome.expect(len(ends) == 1, f"turn {name} ended {len(ends)} times")
        await _check_history(process, name, turn, outcome)
    marks = (words for words in process.workspace.effects.words() if words.startswith("mark"))
    for words, times in Counter(marks).items():
        outcome.expect(times == 1, f"{times} times: {words}")
    return worn


def _is_worn_out(turn: Turn) -> bool:
    lost = (turn.error or {}).get("type") == WorkerLostError.__name__
    return lost and turn.state == "failed" and turn.attempts >= MAX_ATTEMPTS


async def _check_history(process: TurnProcess, name: str, turn: Turn, outcome: Outcome) -> None:
    """A message, a call, its result and an answer: each once, in this order.

    A turn that wore out may lack what comes last, but no call lacks its result.
    """
    loaded = await process.store.load(turn.session, None)
    rows = loaded.messages if loaded else []
    outcome.expect([row.seq for row in rows] == list(range(1, len(rows) + 1)), f"{name}: a gap")
    rows_of_turn = [row for row in rows if row.invocation_id == turn.invocation_id]
    talk = [row for row in rows_of_turn if row.role != "control"]
    roles, right = [row.role for row in talk], ["user", "assistant", "tool", "assistant"]
    is_open = bool(talk) and talk[-1].role == "assistant" and bool(talk[-1].tool_calls)
    outcome.expect(not is_open, f"the history of {name} ends with an open call")
    wanted = right if turn.state == "completed" else right[: len(roles)]
    outcome.expect(roles == wanted, f"the history of {name} is {roles}")


async def _submit(process: TurnProcess, name: str, session: int) -> str:
    return await process.say(MESSAGE.format(name=name), session=f"s{session}")


async def _kill_at_random(
    process: TurnProcess, drawn: random.Random, count: int, outcome: Outcome
) -> None:
    """Two workers, of which one is killed and replaced at random times while clients submit."""
    turns, endless = dict[str, str](), dict[str, str]()
    async with Crew(process.workspace, 2, delay=0.01, dead_after=DEAD_AFTER) as crew:
        for kill in range(count):
            if kill % ENDLESS_EVERY == 0:
                name = f"endless-{kill}"
                endless[name] = await process.say(ENDLESS, session=name)
            for n in range(3):
                name = f"{kill}-{n}"
                turns[name] = await _submit(process, name, drawn.randrange(SESSIONS))
            await asyncio.sleep(drawn.uniform(0.0, 0.5))
            await crew.replace(drawn.randrange(len(crew.members)))
        more = await _kill_until_ended(process, endless, crew, drawn)
        worn = await _ended(process, turns | endless, outcome, may_wear_out=True)
    given_up = {turn.id for turn in worn}
    outcome.expect(set(endless.values()) <= given_up, "a turn without an end did not wear out")
    attempts = [(await process.turns.get(turn)).attempts for turn in turns.values()]
    resumed = sum(each > 1 for each in attempts)
    outcome.note(
        f"{count + more} kills over {len(turns) + len(endless)} turns, {resumed} resumed, "
        f"{len(worn)} given up after {MAX_ATTEMPTS} deaths or more with a closed history"
    )


async def _kill_until_ended(
    process: TurnProcess, turns: dict[str, str], crew: Crew, drawn: random.Random
) -> int:
    """Kill until the turns that only kills can end have ended; return the additional kills."""
    kills, until = 0, time.monotonic() + PATIENCE * len(turns)
    while time.monotonic() < until:
        states = [(await process.turns.get(turn)).state for turn in turns.values()]
        if "running" not in states and "queued" not in states:
            break
        await crew.replace(drawn.randrange(len(crew.members)))
        await asyncio.sleep(drawn.uniform(0.5, 1.0))  # a worker needs a moment to take a turn
        kills += 1
    return kills


async def _crowd(process: TurnProcess, drawn: random.Random, count: int, outcome: Outcome) -> None:
    """Two processes submit turns for one session, two others run them."""
    turns, refused = dict[str, str](), 0
    with ExitStack() as ending:
        for _ in range(2):
            worker = WorkerProcess(process.workspace, {"dead_after": 30.0})
            ending.callback(worker.kill)
            await asyncio.to_thread(worker.wait_until_ready)
        async with turn_process(process.workspace) as other:
            for n in range(count):
                busy = drawn.choice(["enqueue", "reject"])
                try:
                    who = drawn.choice([process, other])
                    message = MESSAGE.format(name=n)
                    turns[str(n)] = await who.say(message, session="one", busy=busy)
                except SessionBusyError:
                    refused += 1
        await _ended(process, turns, outcome)
    marks = [words.split(" ")[1] for words in process.workspace.effects.words()]
    outcome.expect(marks == list(turns), f"the turns ran in the order {marks}")
    outcome.note(f"{len(turns)} turns of one session in order, {refused} refused")


async def _stop(
    process: TurnProcess, drawn: random.Random, count: int, outcome: Outcome, *, slack: float
) -> None:
    """Stop a worker while it runs turns; the next worker finishes the turns it left."""
    turns: dict[str, str] = {}
    slowest = 0.0
    options = {"delay": 0.05, "drain": DRAIN, "dead_after": 30.0}
    for stop in range(count):
        worker = WorkerProcess(process.workspace, dict(options))
        try:
            await asyncio.to_thread(worker.wait_until_ready)
            for n in range(3):
                turns[f"{stop}-{n}"] = await _submit(process, f"{stop}-{n}", n)
            await asyncio.sleep(drawn.uniform(0.0, 0.4))
            stopped = time.monotonic()
            worker.send(signal.SIGTERM)
            code = await asyncio.to_thread(worker.join)
            slowest = max(slowest, time.monotonic() - stopped)
            outcome.expect(code == 0, f"a worker that received SIGTERM ended with {code}")
        finally:
            worker.kill()
    with ExitStack() as ending:
        last = WorkerProcess(process.workspace, {"dead_after": 30.0})
        ending.callback(last.kill)
        await _ended(process, turns, outcome)
    outcome.expect(slowest < DRAIN + slack, f"a worker took {slowest:.1f} s to stop")
    outcome.note(f"{count} stops over {len(turns)} turns, the slowest {slowest:.1f} s")


G2: Final = Guarantee(
    "G2",
    "kill -9 at random times: each turn ends, nothing twice",
    1_000,
    100,
    _on_both(_kill_at_random),
    parts=4,
)
G6: Final = Guarantee(
    "G6", "concurrent turns on one session: queued or refused, in order", 500, 50, _on_both(_crowd)
)
G10: Final = Guarantee(
    "G10",
    "SIGTERM during turns: none lost, exit within the deadline",
    full=100,
    ci=10,
    run=lambda run: _on_both(partial(_stop, slack=SLACK if run.timed else SLACK_CI))(run),
)
