"""Engines and buses side by side: the time to start a turn, and its cost in each process."""

from __future__ import annotations

import asyncio
import os
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median, quantiles
from typing import TYPE_CHECKING, Final

from bench.engines.buses import streamed_turns
from bench.pg import own_database
from bench.report import Table, summary, verdicts
from bench.rounds import Interval
from bench.targets import Finding, Result, Target, exit_code
from bench.turns.process import poll_until, worker_process
from bench.turns.worker_context import BenchSettings, queue, worker_context
from faults.carriers.temporal_server import temporal_server
from lango.turns.engine.choose import DATABASE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.turns.process import WorkerProcess
    from bench.turns.worker_context import Queue, WorkerContext

START: Final = Target("start of a turn on Temporal, median", 30.0, unit="ms")
CPU: Final = Target("CPU of a worker per empty turn on Temporal", 4.0, unit="ms")
_TURNS: Final = 150
_STARTS: Final = 10
_AT_ONCE: Final = 16
_ROUNDS: Final = 12
_QUICK_ROUNDS: Final = 4
_TICK: Final = os.sysconf("SC_CLK_TCK")
_ENDED: Final = "select count(*) from turns where state = 'completed'"
_BACKENDS: Final = "select pid from pg_stat_activity where datname = current_database()"


@dataclass(slots=True)
class Figures:
    """The measurements of one engine, by round."""

    starts: list[float] = field(default_factory=list[float])  # seconds
    rates: list[float] = field(default_factory=list[float])  # turns per second
    worker: list[float] = field(default_factory=list[float])  # CPU seconds per turn
    postgres: list[float] = field(default_factory=list[float])
    server: list[float] = field(default_factory=list[float])


@dataclass(frozen=True, slots=True)
class Contender:
    """An engine with its own database, worker process and submitter."""

    context: WorkerContext
    queue: Queue
    worker: WorkerProcess
    server: int | None  # the process of the engine's server
    figures: Figures = field(default_factory=Figures)

    async def measure(self, sessions: Sequence[str]) -> None:
        """One round."""
        for session in sessions[:_STARTS]:
            began = time.monotonic()
            turn = await self.context.submit(session)
            await self.context.turns.wait(turn.id)
            self.figures.starts.append((await self.worker.figures()).last_call - began)
        await self._flow(sessions[_STARTS:])

    async def _flow(self, sessions: Sequence[str]) -> None:
        (ended,) = await self.queue.row(_ENDED)
        used, began = await self._used(), time.monotonic()
        limit = asyncio.Semaphore(_AT_ONCE)

        async def submit(session: str) -> None:
            async with limit:
                await self.context.submit(session)

        await asyncio.gather(*map(submit, sessions))
        wanted = ended + len(sessions)
        await poll_until(partial(self.queue.row, _ENDED), lambda row: row[0] >= wanted)
        self.figures.rates.append(len(sessions) / (time.monotonic() - began))
        after = await self._used()
        spent = [(b - a) / len(sessions) for a, b in zip(used, after, strict=True)]
        for series, value in zip(
            (self.figures.worker, self.figures.postgres, self.figures.server), spent, strict=True
        ):
            series.append(value)

    async def _used(self) -> tuple[float, float, float]:
        """CPU seconds so far: of the worker, of PostgreSQL's backends, of the engine's server."""
        backends = await self.queue.connection.fetch(_BACKENDS)
        postgres = sum(_cpu(int(row["pid"])) for row in backends)
        server = 0.0 if self.server is None else _cpu(self.server)
        return (await self.worker.figures()).cpu, postgres, server


def _cpu(pid: int) -> float:
    """CPU seconds of a process on this machine; 0 once it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / _TICK


async def _contender(stack: AsyncExitStack, name: str, url: str, server: int | None) -> Contender:
    enter = stack.enter_async_context
    settings = BenchSettings(await enter(own_database(f"_{name}")), engine=url)
    made = await enter(queue(settings))
    context = await enter(worker_context(settings))
    return Contender(context, made, await enter(worker_process(settings)), server)


async def compare(rounds: int) -> Result:
    """All engines in the same rounds, after one round to warm up."""
    async with AsyncExitStack() as stack:
        temporal = stack.enter_context(temporal_server())
        await temporal.start()
        contenders = {
            "turns table": await _contender(stack, "table", DATABASE, None),
            "Temporal": await _contender(stack, "temporal", temporal.url, temporal.pid),
        }
        for number in range(rounds + 1):
            for contender in contenders.values():
                sessions = await contender.queue.sessions(_STARTS + _TURNS)
                await contender.measure(sessions)
                if not number:
                    _forget(contender.figures)
    return _result({name: each.figures for name, each in contenders.items()}, rounds)


def _forget(figures: Figures) -> None:
    for series in (figures.starts, figures.rates, figures.worker, figures.postgres, figures.server):
        series.clear()


def _result(found: dict[str, Figures], rounds: int) -> Result:
    table = Table(
        f"Engines: {rounds} rounds of {_STARTS} turns one by one and {_TURNS} together (medians)",
        ("engine", "start ms", "p95", "turns/s", "CPU ms: worker", "PostgreSQL", "server"),
    )
    for name, figures in found.items():
        cpu = (figures.worker, figures.postgres, figures.server)
        table.add(
            name,
            f"{median(figures.starts) * 1e3:.1f}",
            f"{quantiles(figures.starts, n=20)[-1] * 1e3:.1f}",
            f"{median(figures.rates):.0f}",
            *(f"{median(series) * 1e3:.2f}" for series in cpu),
        )
    temporal = found["Temporal"]
    return Result(
        [table],
        [
            Finding(START, Interval.exact(median(temporal.starts) * 1e3)),
            Finding(CPU, Interval.exact(median(temporal.worker) * 1e3)),
        ],
    )


async def main(*, quick: bool) -> int:
    """Run it; the exit code."""
    began = time.monotonic()
    findings: list[Finding] = []
    for measure in (
        compare(_QUICK_ROUNDS if quick else _ROUNDS),
        streamed_turns(quick=quick),
    ):
        result = await measure
        print(*result.tables, sep="\n")
        findings += result.findings
    print(verdicts(findings))
    print(summary("engines", findings, time.monotonic() - began))
    return exit_code(findings)
