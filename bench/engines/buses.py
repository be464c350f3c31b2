"""Buses side by side: the cost of a streamed turn to PostgreSQL, the worker and the reader."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from statistics import median, quantiles
from typing import TYPE_CHECKING, Any, Final

from bench.pg import connect
from bench.report import Table, millis
from bench.rounds import Interval
from bench.store.ours import Lango
from bench.targets import Finding, Result, Target
from faults.carriers.bus_servers import COMMANDS, bus_server
from faults.database.own_cluster import own_cluster
from lango.core.turns.events import Completed, MessageDelta
from lango.store.sessions.store import SqlSessionStore
from lango.turns import event_loop
from lango.turns.engine.choose import DATABASE, engine_of
from lango.turns.service import Turns
from lango.turns.worker import TurnWorker, WorkerOptions

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from lango.core.turns.events import Publish, TurnEvent
    from lango.store.turns.rows import Claim

APP: Final = "words"
_WORDS_PER_SECOND: Final = 30
_TICK: Final = os.sysconf("SC_CLK_TCK")
_BACKENDS: Final = "select pid from pg_stat_activity where pid <> pg_backend_pid()"
_WAL: Final = "select pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::float8"
_SETTLED: Final = 1.5  # seconds until readers have subscribed


def _targets(bus: str) -> tuple[Target, Target, Target, Target]:
    return (
        Target(f"PostgreSQL's CPU per streamed turn on {bus}, × database", 0.4),
        Target(f"WAL per streamed turn on {bus}, × database", 0.25),
        Target(f"reader's CPU per streamed turn on {bus}, × database", 0.5),
        Target(f"word to reader on {bus}, 95th percentile", 60, unit="ms"),
    )


class Words:
    """Streams a word with its time, thirty times a second."""

    fingerprint = "words"
    remembers = False
    embedder = None

    def __init__(self, seconds: float) -> None:
        self._words = int(seconds * _WORDS_PER_SECOND)
        self.gate = asyncio.Event()

    async def run(
        self, claim: Claim, *, abort: asyncio.Event, publish: Publish
    ) -> AsyncGenerator[TurnEvent]:
        """Stream, once the gate is open; turns begin at different moments."""
        del abort, publish
        await self.gate.wait()
        await asyncio.sleep(claim.turn.session_pk % 50 / 1_500)
        for _ in range(self._words):
            yield MessageDelta("m", f"{time.time():.6f} ")
            await asyncio.sleep(1 / _WORDS_PER_SECOND)
        yield Completed()


@asynccontextmanager
async def _turns(url: str, bus: str) -> AsyncGenerator[tuple[SqlSessionStore, Any, Turns]]:
    store = SqlSessionStore(url)
    engine = engine_of(DATABASE, bus, store.database)
    async with store, engine:
        yield store, engine, Turns(store, engine)


async def _work(url: str, bus: str, count: str, seconds: str) -> None:
    """A worker process: opens the gate at a line of its input."""
    async with _turns(url, bus) as (store, engine, _):
        app = Words(float(seconds))
        options = WorkerOptions(concurrency=int(count) + 5)
        async with TurnWorker(store, engine, {APP: app}, options):
            print("up", flush=True)
            await asyncio.to_thread(sys.stdin.readline)
            app.gate.set()
            await asyncio.to_thread(sys.stdin.readline)


async def _read(url: str, bus: str) -> None:
    """A reader process: follows the turns of its input, and prints how late each word was."""
    late: list[float] = []
    ids: list[str] = json.loads(await asyncio.to_thread(sys.stdin.readline))

    async def follow(turns: Turns, turn_id: str) -> None:
        async for event in turns.events(turn_id):
            if event.type == MessageDelta.type:
                now = time.time()
                late.extend(now - float(word) for word in str(event.data["text"]).split())

    async with _turns(url, bus) as (_, _, turns):
        print("up", flush=True)
        await asyncio.gather(*(follow(turns, each) for each in ids))
    print(json.dumps(late), flush=True)
    await asyncio.to_thread(sys.stdin.readline)


@dataclass(slots=True)
class Streamed:
    """The measurements of one bus, a figure for each round; CPU in seconds per turn."""

    postgres: list[float] = field(default_factory=list[float])
    worker: list[float] = field(default_factory=list[float])
    reader: list[float] = field(default_factory=list[float])
    wal: list[float] = field(default_factory=list[float])  # bytes per turn
    late: list[float] = field(default_factory=list[float])  # seconds, of each word


class _Process:
    """A worker or a reader."""

    def __init__(self, *arguments: str) -> None:
        command = [sys.executable, "-m", "bench.engines.buses", *arguments]
        self._popen = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    async def send(self, line: str = "") -> None:
        assert self._popen.stdin is not None
        self._popen.stdin.write(line + "\n")
        self._popen.stdin.flush()

    async def receive(self) -> str:
        assert self._popen.stdout is not None
        return await asyncio.to_thread(self._popen.stdout.readline)

    @property
    def cpu(self) -> float:
        return _cpu(self._popen.pid)

    async def end(self) -> None:
        await self.send()
        await asyncio.to_thread(self._popen.wait)


def _cpu(pid: int) -> float:
    """CPU seconds of a process; 0 if it has ended."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / _TICK


async def _round(url: str, bus: str, count: int, seconds: float, found: Streamed) -> None:
    """Stream `count` turns concurrently; one process reads them all."""
    beside = await connect(url)
    worker = _Process("work", url, bus, str(count), str(seconds))
    await worker.receive()
    async with _turns(url, bus) as (_, _, turns):
        name = f"{time.time():.6f}"
        submitting = (
            turns.submit(APP, "x" * 400, session=f"{name}-{number}") for number in range(count)
        )
        ids = [turn.id for turn in await asyncio.gather(*submitting)]
        reader = _Process("read", url, bus)
        await reader.send(json.dumps(ids))
        await reader.receive()
        await asyncio.sleep(_SETTLED)
        pids = [row["pid"] for row in await beside.fetch(_BACKENDS)]
        before = {pid: _cpu(pid) for pid in pids}
        wal, cpu = await beside.fetchval(_WAL), (worker.cpu, reader.cpu)
        await worker.send()
        found.late += json.loads(await reader.receive())
        used = sum(max(_cpu(pid) - then, 0.0) for pid, then in before.items())
        found.postgres.append(used / count)
        found.wal.append((await beside.fetchval(_WAL) - wal) / count)
        found.worker.append((worker.cpu - cpu[0]) / count)
        found.reader.append((reader.cpu - cpu[1]) / count)
        await reader.end()
    await worker.end()
    await beside.close()


async def streamed_turns(*, quick: bool) -> Result:
    """Measure all buses, in rotation."""
    count, seconds, rounds = (30, 4.0, 2) if quick else (60, 8.0, 5)
    with ExitStack() as servers:
        cluster = servers.enter_context(own_cluster())
        await Lango.prepare(cluster.url)
        buses = {DATABASE: DATABASE}
        for kind in COMMANDS:
            server = servers.enter_context(bus_server(kind))
            await server.start()
            buses[kind] = server.url
        found = {kind: Streamed() for kind in buses}
        for _ in range(rounds):
            for kind, bus in buses.items():
                await _round(cluster.url, bus, count, seconds, found[kind])
    return _result(found, f"{count} turns of {seconds:g} s at once, {_WORDS_PER_SECOND} words/s")


def _result(found: dict[str, Streamed], what: str) -> Result:
    table = Table(
        f"Streamed turns, read in another process ({what}; medians)",
        ("bus", "PostgreSQL ms CPU", "WAL KB", "worker ms", "reader ms", "word ms", "95th"),
    )
    for kind, streamed in found.items():
        table.add(
            kind,
            *(millis(median(each)) for each in (streamed.postgres,)),
            f"{median(streamed.wal) / 1024:.0f}",
            *(millis(median(each)) for each in (streamed.worker, streamed.reader)),
            millis(median(streamed.late)),
            millis(_p95(streamed.late)),
        )
    findings: list[Finding] = []
    base = found[DATABASE]
    for kind, streamed in list(found.items())[1:]:
        pairs = (
            (streamed.postgres, base.postgres),
            (streamed.wal, base.wal),
            (streamed.reader, base.reader),
        )
        figures = [median(measured) / median(baseline) for measured, baseline in pairs]
        for target, figure in zip(
            _targets(kind), [*figures, 1e3 * _p95(streamed.late)], strict=True
        ):
            findings.append(Finding(target, Interval.exact(figure)))
    return Result([table], findings)


def _p95(seconds: Sequence[float]) -> float:
    return quantiles(seconds, n=20)[-1]


if __name__ == "__main__":
    _, role, *arguments = sys.argv
    event_loop.run({"work": _work, "read": _read}[role](*arguments))
