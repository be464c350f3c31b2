"""A large database beside a small one: do append and load keep their ratio to bare?"""

from __future__ import annotations

import random
import time
from contextlib import asynccontextmanager
from functools import partial
from statistics import median
from typing import TYPE_CHECKING, Final

from bench.events import APPENDED_BYTES, tokens
from bench.pg import connect, own_database
from bench.report import Table, micros, summary, verdicts
from bench.rounds import Stopwatch, divide, estimate, interleave, wall
from bench.store.bare import ROWS_LOADED, Bare
from bench.store.ours import Lango
from bench.targets import Finding, Result, Target, exit_code, settle

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence

    from bench.rounds import Sample
    from bench.store.contenders import Contender

SESSIONS: Final = 100_000
MESSAGES: Final = 100
EMPTY: Final = 200  # sessions of the "empty" database: enough that a round meets none twice

_AT_A_TIME: Final = 10  # messages of a session that are written together, as by a few turns
_BATCH: Final = 10_000  # sessions per statement
_ROUNDS: Final = 40
_OPERATIONS: Final = 40

TARGETS: Final = {
    "append": Target("append, change of the ratio to bare", 1.2),
    "load": Target("load, change of the ratio to bare", 1.2),
}


class Filled:
    """A contender and its sessions."""

    def __init__(self, contender: Contender, sessions: Sequence[str]) -> None:
        self.contender = contender
        self._sessions = sessions
        self._draw = random.Random(len(sessions))

    def _sample_sessions(self, count: int) -> list[str]:
        return self._draw.sample(self._sessions, count)

    async def append(self) -> Sample:
        """A turn of two messages into each of some sessions."""
        turns = [await self.contender.writer(s) for s in self._sample_sessions(_OPERATIONS // 2)]
        for writer in turns:
            writer.stage(2, APPENDED_BYTES)
        watch = Stopwatch(2 * len(turns))
        with watch:
            for writer in turns:
                await writer.append()
                await writer.append()
        return watch.sample

    async def load(self) -> Sample:
        """Some sessions, most of them not touched before."""
        sessions = self._sample_sessions(_OPERATIONS)
        watch = Stopwatch(_OPERATIONS)
        with watch:
            for session in sessions:
                await self.contender.load(session)
        return watch.sample


class FilledDatabase:
    """One database with both contenders in it, filled alike."""

    def __init__(self, size: str, bare: Filled, ours: Filled) -> None:
        self.size = size
        self.bare = bare
        self.ours = ours


@asynccontextmanager
async def _filled_database(name: str, count: int) -> AsyncGenerator[FilledDatabase]:
    """A database of its own with this many sessions of each contender."""
    async with own_database(f"_{name}") as url:
        for prepare in (Bare.prepare, Lango.prepare):
            await prepare(url)
        bare = await Bare.open(url)
        ours = Lango(url, token_budget=ROWS_LOADED * tokens(APPENDED_BYTES))
        try:
            filled = await _filled(bare, ours, count)
            yield FilledDatabase(f"{count:,} sessions ({await _settled(url)})", *filled)
        finally:
            await bare.close()
            await ours.close()


async def _filled(bare: Bare, ours: Lango, count: int) -> tuple[Filled, Filled]:
    size = APPENDED_BYTES
    bare_sessions = await bare.sessions(count)
    await _fill(bare.name, bare_sessions, lambda s, a, b: bare.extend(s, a, b, size))
    await bare.advance(bare_sessions, MESSAGES, size)

    template = await ours.template(size)
    our_sessions = await ours.sessions(count)
    await _fill(
        ours.name, our_sessions, lambda s, a, b: ours.extend(s, a, b, template, "alternating")
    )
    await ours.advance(our_sessions, MESSAGES, template)
    return Filled(bare, bare_sessions), Filled(ours, our_sessions)


async def _fill(
    name: str, sessions: Sequence[str], extend: Callable[[Sequence[str], int, int], Awaitable[None]]
) -> None:
    """Extend all sessions a little, repeatedly: no session is stored in one piece."""
    began, done = time.monotonic(), 0
    total = len(sessions) * MESSAGES
    for first in range(1, MESSAGES + 1, _AT_A_TIME):
        for start in range(0, len(sessions), _BATCH):
            batch = sessions[start : start + _BATCH]
            await extend(batch, first, first + _AT_A_TIME - 1)
            done += len(batch) * _AT_A_TIME
        seconds = time.monotonic() - began
        print(f"{name}: {done:,} of {total:,} messages, {done / seconds:,.0f}/s", flush=True)


async def _settled(url: str) -> str:
    """Vacuum, analyze and write everything out; the database's size."""
    connection = await connect(url)
    await connection.execute("vacuum analyze")
    await connection.execute("checkpoint")
    size = await connection.fetchval("select pg_size_pretty(pg_database_size(current_database()))")
    await connection.close()
    return str(size)


async def _compare(small: FilledDatabase, large: FilledDatabase, rounds: int) -> Result:
    """Measure both databases in the same rounds, so that noise affects both ratios alike."""
    samples = await interleave(
        {
            (operation, database, contender): getattr(getattr(database, contender), operation)
            for operation in TARGETS
            for database in (small, large)
            for contender in ("bare", "ours")
        },
        rounds,
    )
    table = Table(
        f"Random sessions of {MESSAGES} messages of {APPENDED_BYTES} bytes, newest {ROWS_LOADED} "
        f"loaded (median of {rounds} rounds)",
        ("operation", "bare µs", "lango µs", "× bare"),
    )
    findings: list[Finding] = []
    for operation, target in TARGETS.items():
        ratios: list[list[float]] = []
        for database in (small, large):
            base, own = (
                wall(samples[operation, database, "bare"]),
                wall(samples[operation, database, "ours"]),
            )
            ratios.append(divide(own, base))
            times = micros(median(base)), micros(median(own))
            table.add(f"{operation}, {database.size}", *times, estimate(ratios[-1]))
        findings.append(Finding(target, estimate(divide(ratios[1], ratios[0]))))
    return Result([table], findings)


async def main(*, percent: float) -> int:
    """Fill, measure, compare; the exit code."""
    began = time.monotonic()
    count = max(EMPTY, round(SESSIONS * percent / 100))
    async with _filled_database("small", EMPTY) as small, _filled_database("large", count) as large:
        result = await settle(partial(_compare, small, large), _ROUNDS)
    for table in (*result.tables, verdicts(result.findings)):
        print(table)
    print(summary("scale", result.findings, time.monotonic() - began))
    return exit_code(result.findings)
