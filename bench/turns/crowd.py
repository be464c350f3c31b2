"""Many turns in one process: their memory while they wait, and the cost of their streams."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import TYPE_CHECKING, Final

from bench.pg import own_database
from bench.report import Table, micros
from bench.rounds import Interval, cpu, divide, estimate, interleave, wall
from bench.store.append import TOGETHER, open_writers, rounder
from bench.store.ours import Lango
from bench.targets import Finding, Result, Target
from bench.turns.process import poll_until, worker_process
from bench.turns.worker_context import BenchSettings, queue, worker_context

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from bench.rounds import Sample
    from bench.turns.process import Figures, WorkerProcess
    from bench.turns.worker_context import Queue

WAITING: Final = 2_000
QUICK_WAITING: Final = 200
STREAMING: Final = 500
ANSWERS: Final = {"waiting": "one by one", "waiting together": "at one moment"}
"""The apps whose models let turns wait, and how they answer them."""
APPENDS: Final = Target(
    f"append throughput beside {STREAMING} turns that stream", 0.8, at_least=True
)

_WRITERS: Final = 16
_TO_FLOW: Final = 0.3  # seconds until a stream that was let go, or held, is on its way or still
_COUNT: Final = "select count(*) from turns where state = $1"
_CONNECTIONS: Final = "select count(*) from pg_stat_activity where datname = current_database()"
_LOGGED: Final = """
select extract(epoch from now())::float, sum(last_event)::bigint from turns where state = 'running'
"""


async def until(queue: Queue, state: str, count: int) -> None:
    """Wait until this number of turns is in a state."""
    await poll_until(partial(queue.row, _COUNT, state), lambda row: row[0] >= count)


async def until_called(worker: WorkerProcess, calls: int) -> Figures:
    """Wait until a worker has called its model this many times."""
    return await poll_until(worker.figures, lambda figures: figures.calls >= calls)


async def _warmed_up(made: Queue, worker: WorkerProcess, session: str) -> Figures:
    """Run one turn: ADK imports lazily, once per worker."""
    await made.fill([session], 1)
    await worker.send("open")
    await worker.send("start")
    await until(made, "completed", 1)
    await worker.send("stop")
    await worker.send("shut")
    return await worker.figures()


@dataclass(frozen=True, slots=True)
class _Crowd:
    """The figures before, while all turns wait, and after; and the connections."""

    before: Figures
    full: Figures
    after: Figures
    connections: int


async def _crowd(app: str, turns: int) -> _Crowd:
    async with own_database("_c") as url:
        settings = BenchSettings(url, app, concurrency=turns)
        async with queue(settings) as made:
            first, *sessions = await made.sessions(1 + turns)
            (others,) = await made.row(_CONNECTIONS)
            async with worker_process(settings, start=False) as worker:
                before = await _warmed_up(made, worker, first)
                await made.fill(sessions, 1)
                await made.settle()
                await worker.send("start")
                full = await until_called(worker, before.calls + turns)
                (connections,) = await made.row(_CONNECTIONS)
                await worker.send("open")
                await until(made, "completed", 1 + turns)
                return _Crowd(before, full, await worker.figures(), connections - others)


async def waiting(turns: int) -> Result:
    """Measure a process in which this number of turns waits for the models, until these answer."""
    table = Table(
        f"{turns:,} turns that wait for their models, in one process",
        (
            *("models answer", "MB before", "MB while they wait", "KB a turn", "connections"),
            *("worst stall until all wait, ms CPU", "until all are over"),
        ),
    )
    findings: list[Finding] = []
    for app, how in ANSWERS.items():
        crowd = await _crowd(app, turns)
        held = crowd.full.memory - crowd.before.memory
        table.add(
            how,
            *(f"{crowd.before.memory:.0f}", f"{crowd.full.memory:.0f}"),
            *(f"{held / turns * 1e3:.0f}", crowd.connections),
            *(f"{figures.worst_stall * 1e3:.0f}" for figures in (crowd.full, crowd.after)),
        )
        findings.append(stalled(turns, how, crowd.after.worst_stall))
    return Result([table], findings)


def stalled(turns: int, how: str, seconds: float) -> Finding:
    """The longest stall of a loop, compared with its target."""
    what = f"worst stall of the loop, {turns:,} turns wait, answers {how}"
    return Finding(Target(what, 100, unit="ms of its CPU"), Interval.exact(seconds * 1e3))


def _beside(
    worker: WorkerProcess, append: Callable[[], Awaitable[Sample]]
) -> Callable[[], Awaitable[Sample]]:
    """Rounds of appends while the turns stream."""

    async def run() -> Sample:
        await worker.send("open")
        await asyncio.sleep(_TO_FLOW)
        sample = await append()
        await worker.send("shut")
        await asyncio.sleep(_TO_FLOW)
        return sample

    return run


async def _read(settings: BenchSettings, turn_id: str) -> None:
    """Read one of the streams: then all of them are notified to other processes."""
    async with worker_context(settings) as context:
        async for _ in context.turns.events(turn_id):
            pass


async def _pace(made: Queue, worker: WorkerProcess) -> tuple[float, float]:
    """Rows of the log per second while the turns stream, and the worker's share of a core."""
    await worker.send("open")
    await asyncio.sleep(_TO_FLOW)
    began, before, busy = *await made.row(_LOGGED), (await worker.figures()).cpu
    await asyncio.sleep(2.0)
    ended, after, used = *await made.row(_LOGGED), (await worker.figures()).cpu
    await worker.send("shut")
    return (after - before) / (ended - began), (used - busy) / (ended - began)


async def appends_beside(rounds: int) -> Result:
    """Appends of one process beside turns that stream in another and are read."""
    async with own_database("_s") as url:
        settings = BenchSettings(url, "streaming", concurrency=STREAMING)
        async with queue(settings) as made, worker_process(settings) as worker:
            await made.fill(await made.sessions(STREAMING), 1)
            await until(made, "running", STREAMING)
            await made.settle()
            (turn_id,) = await made.row("select id from turns where state = 'running' limit 1")
            reader = asyncio.create_task(_read(settings, turn_id))
            ours = Lango(url)
            try:
                pace = await _pace(made, worker)
                append = rounder(await open_writers(ours, _WRITERS), TOGETHER)
                ways = {"none streams": append, "all stream": _beside(worker, append)}
                samples = await interleave(ways, rounds)
            finally:
                reader.cancel()
                await ours.close()
    return _appends_result(rounds, samples, pace)


def _appends_result(
    rounds: int, samples: dict[str, list[Sample]], pace: tuple[float, float]
) -> Result:
    table = Table(
        f"Appends of {_WRITERS} writers beside {STREAMING} turns in another process, one of them "
        f"read (median of {rounds} rounds)",
        ("turns", "appends/s", "×", "client CPU µs", "log rows/s", "worker's share of a core"),
    )
    none, all_ = samples
    ratios = {n: estimate(divide(wall(samples[none]), wall(s))) for n, s in samples.items()}
    for name, series in samples.items():
        flow = ("", "") if name == none else (f"{pace[0]:,.0f}", f"{pace[1]:.2f}")
        cells = f"{1 / median(wall(series)):,.0f}", ratios[name], micros(median(cpu(series)))
        table.add(name, *cells, *flow)
    return Result([table], [Finding(APPENDS, ratios[all_])])
