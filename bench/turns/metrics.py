"""The cost of metrics: the same durable turns with metrics on and off, in one process."""

from __future__ import annotations

import time
from contextlib import AsyncExitStack
from functools import partial
from statistics import median
from timeit import timeit
from typing import TYPE_CHECKING, Final

from bench.pg import own_database
from bench.report import Table, millis
from bench.rounds import Interval, Stopwatch, cpu, divide, estimate, interleave
from bench.targets import Finding, Result, Target
from bench.turns.worker_context import BenchSettings, queue, worker_context
from lango.telemetry.metrics.switch import metrics

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from bench.rounds import Sample
    from bench.turns.worker_context import WorkerContext
    from lango.telemetry.metrics.recorder import Recorder

ON: Final = Target("client CPU of a turn with metrics, × without", 1.05)
OFF: Final = Target("checks of a turn without metrics, % of its client CPU", 0.5, unit="%")
_MODEL: Final = "served, with a tool"
_TURNS: Final = 16  # a round
_CHECKS: Final = 100
"""More checks than a turn of this model makes: one for each event, each model call and request."""
_TRIED: Final = 1_000_000
_SCRAPES: Final = 20


async def _round(
    context: WorkerContext, recorder: Recorder | None, sessions: Iterator[str]
) -> Sample:
    batch = [next(sessions) for _ in range(_TURNS)]
    metrics.recorder = recorder
    watch = Stopwatch(_TURNS)
    with watch:
        for session in batch:
            turn = await context.submit(session)
            assert (await context.turns.wait(turn.id)).state == "completed"
    metrics.recorder = None
    return watch.sample


async def cost(rounds: int) -> Result:
    """Two workers of one process, one of them measured, in the same rounds."""
    recorder = metrics.turn_on()
    ways = {"off": None, "on": recorder}
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        rounders: dict[str, Callable[[], Awaitable[Sample]]] = {}
        for name, chosen in ways.items():
            settings = BenchSettings(await enter(own_database(f"_{name}")), _MODEL)
            staged = await enter(queue(settings))
            metrics.recorder = chosen  # the worker looks for it when it is made
            context = await enter(worker_context(settings))
            await enter(context.worker)
            sessions = iter(await staged.sessions((rounds + 1) * _TURNS))
            rounders[name] = partial(_round, context, chosen, sessions)
            await staged.settle()
        metrics.recorder = None
        samples = await interleave(rounders, rounds)
    return _result(rounds, samples, recorder)


def _result(rounds: int, samples: dict[str, list[Sample]], recorder: Recorder) -> Result:
    off, on = cpu(samples["off"]), cpu(samples["on"])
    ratio = estimate(divide(on, off))
    check = timeit("m.recorder is not None", globals={"m": metrics}, number=_TRIED) / _TRIED
    share = Interval.exact(100 * _CHECKS * check / median(off))
    began = time.process_time()
    for _ in range(_SCRAPES):
        recorder.render()
    scrape = (time.process_time() - began) / _SCRAPES
    table = Table(
        f"Metrics of a served turn with a tool call, ms (median of {rounds} rounds)",
        ("metrics", "client CPU", "CPU × off"),
    )
    table.add("off", millis(median(off)), "1")
    table.add("on", millis(median(on)), ratio)
    table.add("one scrape, without its query", millis(scrape), "")
    return Result([table], [Finding(ON, ratio), Finding(OFF, share)])
