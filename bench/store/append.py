"""Appends: one at a time, many at once, and into long sessions."""

from __future__ import annotations

import asyncio
from itertools import cycle
from statistics import median
from typing import TYPE_CHECKING, Final

from bench.events import APPENDED_BYTES
from bench.report import Table, micros
from bench.rounds import Stopwatch, cpu, divide, estimate, interleave, wall
from bench.store.contenders import Fill, names
from bench.targets import Finding, Result, Target

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from bench.rounds import Sample
    from bench.store.contenders import Contender, Writer

ONE: Final = Target("append, one at a time, × bare with the same promises", 1.3)
AT_ONCE: Final = {
    16: Target("append throughput, 16 at once", 0.7, at_least=True),
    64: Target("append throughput, 64 at once", 0.6, at_least=True),
}
LONG: Final = Target("append at 10,000 messages vs 100", 1.1)

_LENGTHS: Final = (100, 1_000, 10_000)
_IN_A_ROW: Final = 60
_TO_WARM_UP: Final = 6
TOGETHER: Final = 768
_SLOW: Final = 4  # ADK's rounds are a quarter as long: a rate needs no more, and the run ends


def rounder(writers: Sequence[Writer], operations: int) -> Callable[[], Awaitable[Sample]]:
    """A round in which every writer appends its share, all at once."""
    each = operations // len(writers)

    async def write(writer: Writer) -> None:
        for _ in range(each):
            await writer.append()

    async def run() -> Sample:
        for writer in writers:
            writer.stage(each, APPENDED_BYTES)
        watch = Stopwatch(each * len(writers))
        if len(writers) == 1:
            with watch:
                await write(writers[0])
        else:
            with watch:
                await asyncio.gather(*map(write, writers))
        return watch.sample

    return run


async def open_writers(contender: Contender, count: int) -> list[Writer]:
    return [await contender.writer(session) for session in await contender.sessions(count)]


async def one_at_a_time(
    contenders: Sequence[Contender], promised: Contender, rounds: int
) -> Result:
    """Latency of one append after another, also beside the least with the same promises."""
    bare, *slow, ours = contenders
    contenders = bare, promised, *slow, ours
    samples = await interleave(
        {
            c.name: rounder(
                await open_writers(c, 1), _IN_A_ROW // _SLOW if c in slow else _IN_A_ROW
            )
            for c in contenders
        },
        rounds,
        slow=names(slow),
    )
    table = Table(
        f"Append {APPENDED_BYTES} bytes, one at a time (median of {rounds} rounds)",
        ("store", "µs", "× bare", "× same promises", "client CPU µs", "CPU × bare"),
    )
    to_promised = {
        c.name: estimate(divide(wall(samples[c.name]), wall(samples[promised.name])))
        for c in contenders
    }
    for c in contenders:
        table.add(
            c.name,
            micros(median(wall(samples[c.name]))),
            estimate(divide(wall(samples[c.name]), wall(samples[bare.name]))),
            to_promised[c.name],
            micros(median(cpu(samples[c.name]))),
            estimate(divide(cpu(samples[c.name]), cpu(samples[bare.name]))),
        )
    return Result([table], [Finding(ONE, to_promised[ours.name])])


async def at_once(contenders: Sequence[Contender], writers: int, rounds: int) -> Result:
    """Throughput of several writers, each in its own session."""
    bare, *slow, ours = contenders
    samples = await interleave(
        {
            c.name: rounder(
                await open_writers(c, writers),
                TOGETHER // _SLOW if c in slow else TOGETHER,
            )
            for c in contenders
        },
        rounds,
        slow=names(slow),
    )
    table = Table(
        f"Append {APPENDED_BYTES} bytes, {writers} concurrent (median of {rounds} rounds)",
        ("store", "appends/s", "× bare", "client CPU µs"),
    )
    for c in contenders:
        table.add(
            c.name,
            f"{1 / median(wall(samples[c.name])):,.0f}",
            estimate(divide(wall(samples[bare.name]), wall(samples[c.name]))),
            micros(median(cpu(samples[c.name]))),
        )
    ratio = estimate(divide(wall(samples[bare.name]), wall(samples[ours.name])))
    return Result([table], [Finding(AT_ONCE[writers], ratio)])


async def _long_rounder(
    contender: Contender, length: int, operations: int, rounds: int
) -> Callable[[], Awaitable[Sample]]:
    """Rounds in sessions of this length; short ones are new in each, as appends lengthen them."""
    sessions = 1 if length == _LENGTHS[-1] else rounds + 1
    made = await contender.sessions(sessions, Fill(length, APPENDED_BYTES))
    turn = cycle(made)

    async def run() -> Sample:
        writer = await contender.writer(next(turn))
        writer.stage(_TO_WARM_UP, APPENDED_BYTES)
        for _ in range(_TO_WARM_UP):
            await writer.append()
        return await rounder([writer], operations)()

    return run


async def at_length(contenders: Sequence[Contender], rounds: int) -> Result:
    """Latency of appends to sessions that are already long."""
    _, *slow, ours = contenders
    rounders = {
        (c.name, length): await _long_rounder(
            c, length, _IN_A_ROW // (2 * _SLOW if c in slow else 2), rounds
        )
        for c in contenders
        for length in _LENGTHS
    }
    runs = await interleave(rounders, rounds, [key for key in rounders if key[0] in names(slow)])
    samples = {key: wall(series) for key, series in runs.items()}
    table = Table(
        f"Append {APPENDED_BYTES} bytes to a session of a given length, µs "
        f"(median of {rounds} rounds)",
        ("store", *(f"{length:,}" for length in _LENGTHS), "10,000 vs 100"),
    )
    growth = {
        c.name: estimate(divide(samples[c.name, _LENGTHS[-1]], samples[c.name, _LENGTHS[0]]))
        for c in contenders
    }
    for c in contenders:
        times = (micros(median(samples[c.name, length])) for length in _LENGTHS)
        table.add(c.name, *times, growth[c.name])
    return Result([table], [Finding(LONG, growth[ours.name])])
