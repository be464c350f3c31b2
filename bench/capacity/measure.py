"""Measures the inputs of the capacity model: turns at a steady rate, and notices to listeners."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

from bench.pg import connect, own_database
from bench.report import Table
from bench.turns.load import backend_cpu, submit_steadily, tally
from bench.turns.process import poll_until, worker_process
from bench.turns.worker_context import BenchSettings, queue, worker_context

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

    from bench.pg import Connection
    from bench.turns.process import WorkerProcess
    from bench.turns.worker_context import Queue

RATES: Final = {
    "nothing": 30.0,
    "served, instant": 8.0,
    "served, with a tool": 5.0,
    "served, usual": 8.0,
}
"""The apps whose turns are measured, and how many of them start each second."""
SECONDS: Final = 30.0
LISTENERS: Final = (1, 16, 48)
_WARM_UP: Final = 5.0
_NOTICED: Final = 0.5
_TURNS_PER_SESSION: Final = 3
_NOTICES: Final = 3_200
_SENDERS: Final = 8
_CHANNEL: Final = "lango"
_TEXT: Final = "prc_0123456789abcdef01234567 work turn_0123456789abcdef01234567"
_WAL: Final = "select (pg_current_wal_lsn() - '0/0'::pg_lsn)::bigint"
_SIZES: Final = """
select relname, pg_total_relation_size(oid) as size from pg_class
where relkind = 'r' and relnamespace = 'public'::regnamespace
"""


@dataclass(frozen=True, slots=True)
class _Usage:
    """The resources used so far."""

    turns: int
    worker_cpu: float
    submitter_cpu: float
    backends: Mapping[int, float]
    wal: int
    sizes: Mapping[str, int]
    notices: int


@dataclass(frozen=True, slots=True)
class Measured:
    """The resources of one turn of an app; bytes by table, with indexes. CPU is in seconds."""

    turns: int
    worker_cpu: float
    submitter_cpu: float
    database_cpu: float
    wal: float
    tables: Mapping[str, float]
    notices: float

    @classmethod
    def between(cls, before: _Usage, after: _Usage) -> Measured:
        """The resources used per turn between two readings."""
        turns = after.turns - before.turns
        spent = [cpu - before.backends.get(pid, 0.0) for pid, cpu in after.backends.items()]
        grown = {name: size - before.sizes[name] for name, size in after.sizes.items()}
        return cls(
            turns,
            (after.worker_cpu - before.worker_cpu) / turns,
            (after.submitter_cpu - before.submitter_cpu) / turns,
            sum(spent) / turns,
            (after.wal - before.wal) / turns,
            {name: size / turns for name, size in sorted(grown.items()) if size > 0},
            (after.notices - before.notices) / turns,
        )


class _Heard:
    """Counts notices."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, *_: object) -> None:
        self.count += 1


@asynccontextmanager
async def _listening(url: str, heard: _Heard) -> AsyncGenerator[None]:
    listener = await connect(url)
    await cast("Any", listener).add_listener(_CHANNEL, heard)
    try:
        yield
    finally:
        await listener.close()


async def _usage(made: Queue, worker: WorkerProcess, heard: _Heard) -> _Usage:
    """Wait until no turn is open, and read all counters."""
    over = await poll_until(partial(tally, made), lambda found: not found.still_open)
    (wal,) = await made.row(_WAL)
    sizes = {row["relname"]: row["size"] for row in await made.connection.fetch(_SIZES)}
    cpu = (await worker.figures()).cpu, time.process_time(), await backend_cpu(made.connection)
    return _Usage(over.completed, *cpu, wal, sizes, heard.count)


async def measure(app: str, rate: float, seconds: float = SECONDS) -> Measured:
    """Turns of one app, by a worker in another process; each session has a few."""
    heard = _Heard()
    async with own_database("_capacity") as url:
        settings = BenchSettings(url, app)
        async with (
            queue(settings) as made,
            worker_process(settings) as worker,
            worker_context(settings) as context,
        ):
            await submit_steadily(context, await made.sessions(50), rate, _WARM_UP)
            sessions = await made.sessions(round(rate * seconds / _TURNS_PER_SESSION))
            await made.settle()
            # A reader in another process than the worker's, as a server is: logs are notified.
            with context.engine.wakes.subscribe_to_log("turn_none"):
                await asyncio.sleep(_NOTICED)
                async with _listening(url, heard):
                    before = await _usage(made, worker, heard)
                    await submit_steadily(context, sessions, rate, seconds)
                    return Measured.between(before, await _usage(made, worker, heard))


@dataclass(frozen=True, slots=True)
class NoticeCost:
    """The cost of a notice to the server with a number of listeners."""

    listeners: int
    cpu: float  # seconds
    rate: float  # a second, by eight senders


async def measure_notices(listeners: int) -> NoticeCost:
    """Send notices as fast as the server accepts them."""
    heard = _Heard()
    async with AsyncExitStack() as stack:
        url = await stack.enter_async_context(own_database("_notices"))
        connections = [await connect(url) for _ in range(1 + _SENDERS)]
        for connection in connections:
            stack.push_async_callback(connection.close)
        for _ in range(listeners):
            await stack.enter_async_context(_listening(url, heard))
        watching, *senders = connections
        before, began = sum((await backend_cpu(watching)).values()), time.monotonic()
        await asyncio.gather(*map(_send, senders))
        seconds = time.monotonic() - began
        while heard.count < _NOTICES * listeners:  # noqa: ASYNC110 - no event to await
            await asyncio.sleep(0.01)
        used = sum((await backend_cpu(watching)).values()) - before
    return NoticeCost(listeners, used / _NOTICES, _NOTICES / seconds)


async def _send(sender: Connection) -> None:
    for _ in range(_NOTICES // _SENDERS):
        await sender.fetchval("select pg_notify($1, $2)", _CHANNEL, _TEXT)


async def tables() -> list[Table]:
    """Everything the model needs, to be copied into `capacity_figures.py`."""
    turns = Table(
        "What a turn uses (CPU in ms; bytes with indexes)",
        ("app", "turns", "worker", "submitter", "PostgreSQL", "WAL bytes", "notices", "tables"),
    )
    for app, rate in RATES.items():
        found = await measure(app, rate)
        cpu = found.worker_cpu, found.submitter_cpu, found.database_cpu
        sizes = ", ".join(f"{name} {size:,.0f}" for name, size in found.tables.items())
        milliseconds = (f"{seconds * 1e3:.2f}" for seconds in cpu)
        turns.add(
            app, found.turns, *milliseconds, f"{found.wal:,.0f}", f"{found.notices:.2f}", sizes
        )
    notices = Table("What a notice uses", ("listeners", "CPU of the server, µs", "notices/s"))
    for listeners in LISTENERS:
        cost = await measure_notices(listeners)
        notices.add(cost.listeners, f"{cost.cpu * 1e6:.0f}", f"{cost.rate:,.0f}")
    return [turns, notices]
