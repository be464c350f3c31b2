"""Loads of the window the next turn needs, from sessions of any length."""

from __future__ import annotations

import gc
import tracemalloc
from statistics import median
from typing import TYPE_CHECKING, Final

from bench.events import LOADED_BYTES
from bench.report import Table, micros
from bench.rounds import Interval, Stopwatch, cpu, divide, estimate, interleave, wall
from bench.store.contenders import Fill, names
from bench.targets import Finding, Result, Target

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from bench.rounds import Sample
    from bench.store.contenders import Contender

LENGTHS: Final = (100, 1_000, 10_000, 50_000)
SHORTEST, LONGEST = LENGTHS[0], LENGTHS[-1]

WINDOW: Final = {
    length: Target(f"load of a 32,000-token window at {length:,}", 3.0) for length in LENGTHS
}
GROWTH: Final = Target("load at 50,000 vs 100, change of the ratio to bare", 1.3)
MEMORY: Final = Target("peak memory of a load at 50,000", 2.0, unit="MB")

_LOADS: Final = 16
_WHOLE_LOADS: Final = 1  # of a reader that takes the whole session

Sessions = dict[tuple[str, int], str]


async def fill_sessions(
    contenders: Sequence[Contender], longest: Mapping[str, int], lengths: Sequence[int] = LENGTHS
) -> Sessions:
    """One session of each length for each contender, as far as that contender goes."""
    sessions: Sessions = {}
    for contender in contenders:
        for length in lengths:
            if length <= longest.get(contender.name, LONGEST):
                [session] = await contender.sessions(1, Fill(length, LOADED_BYTES))
                sessions[contender.name, length] = session
    return sessions


def _rounder(contender: Contender, session: str, loads: int) -> Callable[[], Awaitable[Sample]]:
    async def run() -> Sample:
        watch = Stopwatch(loads)
        with watch:
            for _ in range(loads):
                await contender.load(session)
        return watch.sample

    return run


async def window(contenders: Sequence[Contender], sessions: Sessions, rounds: int) -> Result:
    """Time of a load at each length, beside the newest 80 rows by key."""
    bare, *slow, ours = contenders
    by_name = {contender.name: contender for contender in contenders}
    lengths = sorted({length for _, length in sessions})
    whole = [key for key in sessions if key[0] in names(slow)]
    samples = await interleave(
        {
            key: _rounder(by_name[key[0]], session, _WHOLE_LOADS if key in whole else _LOADS)
            for key, session in sessions.items()
        },
        rounds,
        slow=whole,
    )
    to_bare = {
        length: divide(wall(samples[ours.name, length]), wall(samples[bare.name, length]))
        for length in lengths
    }
    findings = [Finding(WINDOW[length], estimate(to_bare[length])) for length in lengths]
    findings.append(Finding(GROWTH, estimate(divide(to_bare[LONGEST], to_bare[SHORTEST]))))
    return Result(_tables(names(contenders), lengths, samples), findings)


def _tables(
    stores: Sequence[str], lengths: Sequence[int], samples: Mapping[tuple[str, int], list[Sample]]
) -> list[Table]:
    """Times, ratios and client CPU: a row a store, a column a length."""
    rounds = len(samples[stores[0], lengths[0]])
    title = f"Load of {LOADED_BYTES:,}-byte messages, {{}} (median of {rounds} rounds)"
    columns = ("store", *(f"{length:,}" for length in lengths))
    times, ratios, cpus = (
        Table(title.format(unit), columns) for unit in ("µs", "× bare", "client CPU µs")
    )
    for name in stores:
        found = [(samples.get((name, n)), samples[stores[0], n]) for n in lengths]
        times.add(name, *(micros(median(wall(s))) if s else "" for s, _ in found))
        cpus.add(name, *(micros(median(cpu(s))) if s else "" for s, _ in found))
        ratios.add(name, *(estimate(divide(wall(s), wall(b))) if s else "" for s, b in found))
    return [times, ratios, cpus]


async def peak_memory(contender: Contender, session: str) -> float:
    """Megabytes that one load holds at its peak."""
    await contender.load(session)
    gc.collect()
    tracemalloc.start()
    try:
        await contender.load(session)  # what is kept for the next load is not this one's peak
        gc.collect()
        before, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        await contender.load(session)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return (peak - before) / 1e6


async def memory(contenders: Sequence[Contender], sessions: Sessions) -> Result:
    """Peak memory of a load, short session and long."""
    *_, ours = contenders
    lengths = (SHORTEST, LONGEST)
    table = Table(
        "Peak memory of a load, MB (tracemalloc)",
        ("store", *(f"{length:,}" for length in lengths)),
    )
    peaks = {
        (c.name, length): await peak_memory(c, sessions[c.name, length])
        for c in contenders
        for length in lengths
        if (c.name, length) in sessions
    }
    for c in contenders:
        cells = (peaks.get((c.name, length)) for length in lengths)
        table.add(c.name, *("" if cell is None else f"{cell:.2f}" for cell in cells))
    return Result([table], [Finding(MEMORY, Interval.exact(peaks[ours.name, LONGEST]))])
