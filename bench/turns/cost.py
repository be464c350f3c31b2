"""The cost of a durable turn beside the same turn of the same runner, on the same store."""

from __future__ import annotations

import time
from contextlib import AsyncExitStack
from functools import partial
from statistics import median
from typing import TYPE_CHECKING, Final

from bench.events import USER
from bench.pg import own_database
from bench.report import Table, millis
from bench.rounds import Stopwatch, cpu, divide, estimate, interleave, wall
from bench.targets import Finding, Result, Target
from bench.turns.apps import ANSWER_TAKES
from bench.turns.process import worker_process
from bench.turns.worker_context import MESSAGE, BenchSettings, queue, worker_context
from lango.adk.durable.run import DurableAgent

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping

    from bench.rounds import Sample
    from bench.turns.process import WorkerProcess
    from bench.turns.worker_context import WorkerContext

TARGETS: Final = {
    "wall": Target(f"durable turn of {ANSWER_TAKES} s, wall, × the runner's", 1.15),
    "CPU": Target(f"durable turn of {ANSWER_TAKES} s, client CPU, × the runner's", 1.15),
}
_TURNS: Final = {"usual": 2, "instant": 8}  # a round
_MODELS: Final = {"usual": f"takes {ANSWER_TAKES} s", "instant": "answers at once"}
_RUNNER: Final = "the runner alone"
_DURABLE: Final = "durable"
_ELSEWHERE: Final = "durable, worker in another process"


async def _by_runner(context: WorkerContext, session: str) -> float:
    """Run one turn; return the monotonic time of its model call."""
    assert isinstance(context.app, DurableAgent)
    async for _ in context.app.runner.run(USER, session, MESSAGE):
        pass
    return context.notes.last_call


async def _durably(context: WorkerContext, session: str) -> float:
    turn = await context.submit(session)
    assert (await context.turns.wait(turn.id)).state == "completed"
    return context.notes.last_call


async def _elsewhere(context: WorkerContext, far_worker: WorkerProcess, session: str) -> float:
    await _durably(context, session)
    return (await far_worker.figures()).last_call


def _rounder(
    run: Callable[[str], Awaitable[float]], sessions: Iterator[str], turns: int, first: list[float]
) -> Callable[[], Awaitable[Sample]]:
    """Rounds of turns one after another, each in a session of its own."""

    async def run_round() -> Sample:
        batch = [next(sessions) for _ in range(turns)]
        watch = Stopwatch(turns)
        with watch:
            for session in batch:
                began = time.monotonic()
                first.append(await run(session) - began)
        return watch.sample

    return run_round


async def cost(model: str, rounds: int) -> Result:
    """The three ways with one model, in the same rounds."""
    turns = _TURNS[model]
    first: dict[str, list[float]] = {name: [] for name in (_RUNNER, _DURABLE, _ELSEWHERE)}
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        near, far = [
            BenchSettings(await enter(own_database(f"_{name}")), model) for name in ("a", "b")
        ]
        near_queue, far_queue = [await enter(queue(settings)) for settings in (near, far)]
        context, far_context = [await enter(worker_context(settings)) for settings in (near, far)]
        await enter(context.worker)
        far_worker = await enter(worker_process(far))
        wanted = (rounds + 1) * turns
        sessions = iter(await near_queue.sessions(2 * wanted))
        ways: dict[str, tuple[Callable[[str], Awaitable[float]], Iterator[str]]] = {
            _RUNNER: (partial(_by_runner, context), sessions),
            _DURABLE: (partial(_durably, context), sessions),
            _ELSEWHERE: (
                partial(_elsewhere, far_context, far_worker),
                iter(await far_queue.sessions(wanted)),
            ),
        }
        for each in (near_queue, far_queue):
            await each.settle()
        samples = await interleave(
            {name: _rounder(*way, turns, first[name]) for name, way in ways.items()}, rounds
        )
    return _result(model, rounds, samples, first)


def _result(
    model: str,
    rounds: int,
    samples: Mapping[str, list[Sample]],
    first: Mapping[str, list[float]],
) -> Result:
    table = Table(
        f"A turn whose model {_MODELS[model]}, ms (median of {rounds} rounds)",
        ("turn", "submit to first model call", "wall", "× runner", "client CPU", "CPU × runner"),
    )
    plain = samples[_RUNNER]
    walls = {n: estimate(divide(wall(s), wall(plain))) for n, s in samples.items()}
    cpus = {n: estimate(divide(cpu(s), cpu(plain))) for n, s in samples.items()}
    for name, series in samples.items():
        begin = millis(median(first[name][_TURNS[model] :]))
        cells = begin, millis(median(wall(series))), walls[name]
        cpu_cells = (millis(median(cpu(series))), cpus[name]) if name != _ELSEWHERE else ("", "")
        table.add(name, *cells, *cpu_cells)
    if model != "usual":
        return Result([table])
    found = {"wall": walls[_DURABLE], "CPU": cpus[_DURABLE]}
    return Result([table], [Finding(TARGETS[what], figure) for what, figure in found.items()])
