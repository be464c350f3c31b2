"""How fast one process learns of another's events: log deltas, a worker's death, a cancel."""

from __future__ import annotations

import asyncio
import time
from statistics import median, quantiles
from typing import TYPE_CHECKING, Final

from bench.pg import own_database
from bench.report import Table, millis
from bench.rounds import Interval, estimate
from bench.targets import Finding, Result, Target
from bench.turns.crowd import until, until_called
from bench.turns.process import PATIENCE, poll_until, worker_process
from bench.turns.worker_context import BenchSettings, queue, worker_context

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.turns.process import WorkerProcess
    from bench.turns.worker_context import WorkerContext

READ: Final = Target("log event, written to read in another process, median", 30, unit="ms")
RESUMED: Final = Target("worker killed with 20 turns running, until all are resumed", 10, unit="s")
CANCELLED: Final = Target("cancel from another process to the last effect, median", 100, unit="ms")

DEAD_AFTER: Final = 5.0
_RUNNING: Final = 20
_EVENTS: Final = 200


def spread(seconds: Sequence[float]) -> tuple[str, str, str]:
    """Median, 95th percentile and worst, as milliseconds."""
    return millis(median(seconds)), millis(quantiles(seconds, n=20)[-1]), millis(max(seconds))


def _median_ms(seconds: Sequence[float]) -> Interval:
    return estimate([each * 1e3 for each in seconds])


async def log_latency() -> Result:
    """Deltas that one process publishes and another reads."""
    delays: list[float] = []
    written: list[float] = []
    async with own_database("_l") as url:
        settings = BenchSettings(url, "streaming")
        async with (
            queue(settings) as made,
            worker_process(settings) as worker,
            worker_context(settings) as context,
        ):
            (session,) = await made.sessions(1)
            turn = await context.submit(session)
            await worker.send("open")
            async with asyncio.timeout(PATIENCE):
                async for event in context.turns.events(turn.id):
                    now = time.time()
                    if event.type == "message.delta":
                        delays.append(now - float(str(event.data["text"]).split()[0]))
                        written.append(now - event.at)
                    if len(delays) > _EVENTS:
                        break
    table = Table(
        f"Words of a turn, until another process has read them, ms ({_EVENTS} of them)",
        ("from when they", "median", "95th percentile", "worst"),
    )
    table.add("are said by the agent", *spread(delays[1:]))
    table.add("are written to the log", *spread(written[1:]))
    return Result([table], [Finding(READ, _median_ms(written[1:]))])


async def _takeover() -> float:
    """Kill a worker whose turns all wait for their models; seconds until another has called all."""
    async with own_database("_k") as url:
        settings = BenchSettings(url, "waiting", dead_after=DEAD_AFTER)
        async with queue(settings) as made, worker_process(settings, start=False) as heir:
            await made.fill(await made.sessions(_RUNNING), 1)
            async with worker_process(settings) as doomed:
                await until_called(doomed, _RUNNING)
                await heir.send("start")
                began = time.monotonic()
                doomed.kill()
                await until_called(heir, _RUNNING)
                return (await heir.figures()).last_call - began


async def takeover(rounds: int) -> Result:
    """Some workers killed, one after another."""
    seconds = [await _takeover() for _ in range(rounds)]
    table = Table(
        f"A worker killed with {_RUNNING} turns running, dead after {DEAD_AFTER:g} s",
        ("kills", "seconds until all are resumed, median", "worst"),
    )
    table.add(rounds, f"{median(seconds):.1f}", f"{max(seconds):.1f}")
    return Result([table], [Finding(RESUMED, Interval.exact(max(seconds)))])


async def _cancelled(
    context: WorkerContext, worker: WorkerProcess, session: str
) -> tuple[float, float]:
    """Cancel a turn during a tool; return the seconds to its last effect and to its end."""
    before = (await worker.figures()).last_effect
    turn = await context.submit(session)
    await poll_until(worker.figures, lambda figures: figures.last_effect > before)
    began = time.monotonic()
    await context.turns.cancel(turn.id)
    assert (await context.turns.wait(turn.id)).state == "cancelled"
    over = time.monotonic()
    return (await worker.figures()).last_effect - began, over - began


async def cancels(count: int) -> Result:
    """Cancels of turns that do something every millisecond in another process."""
    async with own_database("_x") as url:
        settings = BenchSettings(url, "busy")
        async with (
            queue(settings) as made,
            worker_process(settings) as worker,
            worker_context(settings) as context,
        ):
            sessions = await made.sessions(count + 1)
            trials = [await _cancelled(context, worker, session) for session in sessions][1:]
            await until(made, "cancelled", count)
    table = Table(
        f"From a cancel in another process, ms ({count} of them)",
        ("to", "median", "95th percentile", "worst"),
    )
    effects, ends = zip(*trials, strict=True)
    table.add("the last effect of the turn's tool", *spread(effects))
    table.add("the end of the turn, heard by who cancelled it", *spread(ends))
    return Result([table], [Finding(CANCELLED, _median_ms(effects))])
