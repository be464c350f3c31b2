"""Turns per second of one worker process: of a short queue, and before a long one."""

from __future__ import annotations

from contextlib import AsyncExitStack
from functools import partial
from statistics import median
from typing import TYPE_CHECKING, Final

from bench.pg import own_database
from bench.report import Table
from bench.rounds import Sample, divide, estimate, interleave, wall
from bench.targets import Finding, Result, Target
from bench.turns.process import poll_until, worker_process
from bench.turns.worker_context import BenchSettings, queue

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from bench.turns.process import WorkerProcess
    from bench.turns.worker_context import Queue

SESSIONS: Final = 200
BACKLOG: Final = 100_000
QUICK_BACKLOG: Final = 5_000
_LIMIT: Final = 0.75
_SHORT: Final = f"a short one, in {SESSIONS} sessions"
_AGENT: Final = "the same, each a real agent's whose model answers at once"

# By the server's clock, from the first claim to the last close.
_PACE: Final = """
select count(*), extract(epoch from max(ended) - min(started))::float
from turns where ended >= $1 and trimmed is null and state = 'completed'
"""


async def _pace(queue: Queue, worker: WorkerProcess, turns: int) -> Sample:
    """Let the worker run until this number of turns is over; return seconds per turn."""
    (began,) = await queue.row("select clock_timestamp()")
    before = (await worker.figures()).cpu
    await worker.send("start")
    await poll_until(partial(queue.row, _PACE, began), lambda row: row[0] >= turns)
    await worker.send("stop")
    count, seconds = await queue.row(_PACE, began)
    used = (await worker.figures()).cpu - before
    return Sample(seconds / count, used / count)


async def _short(queue: Queue, worker: WorkerProcess, sessions: Sequence[str], each: int) -> Sample:
    await queue.fill(sessions, each)
    return await _pace(queue, worker, len(sessions) * each)


async def throughput(backlog: int, each: int, rounds: int) -> Result:
    """A short queue, and long ones in few and in many sessions, in the same rounds.

    A round takes as many turns from each as `each` per session of the short one.
    """
    spread = {f"{backlog:,} turns wait in {n:,} sessions": n for n in (SESSIONS, backlog)}
    rounders: dict[str, Callable[[], Awaitable[Sample]]] = {}
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        for number, name in enumerate((_SHORT, *spread, _AGENT)):
            app = "instant" if name == _AGENT else "nothing"
            settings = BenchSettings(await enter(own_database(f"_{number}")), app)
            made = await enter(queue(settings))
            worker = await enter(worker_process(settings, start=False))
            sessions = await made.sessions(spread.get(name, SESSIONS))
            if name in spread:
                await made.fill(sessions, backlog // len(sessions))
                rounders[name] = partial(_pace, made, worker, SESSIONS * each)
            else:
                rounders[name] = partial(_short, made, worker, sessions, each)
            await made.settle()
        samples = await interleave(rounders, rounds)
    table = Table(
        f"Turns of one worker process, {SESSIONS * each} of each queue (median of {rounds} rounds)",
        ("queue", "turns/s", "× short queue", "CPU ms of the worker per turn"),
    )
    findings: list[Finding] = []
    for name, series in samples.items():
        ratio = estimate(divide(wall(samples[_SHORT]), wall(series)))
        used = f"{median(one.cpu for one in series) * 1e3:.1f}"
        table.add(name, f"{1 / median(wall(series)):,.0f}", ratio, used)
        if name in spread:
            findings.append(Finding(Target(f"throughput, {name}", _LIMIT, at_least=True), ratio))
    return Result([table], findings)
