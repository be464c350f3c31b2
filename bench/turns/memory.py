"""The memory of long streams: turns of 15,000 words beside turns of 150, each in a new process."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Final

from bench.pg import own_database
from bench.report import Table
from bench.rounds import Interval
from bench.server.process import peak_memory
from bench.targets import Finding, Result, Target
from bench.turns.apps import LONG, SHORT
from bench.turns.worker_context import BenchSettings, queue, worker_context
from lango.adk.apps.preload import warm_up

_AT_ONCE: Final = 20
_PEAK: Final = Path("/proc/self/clear_refs")
_TARGET: Final = Target(
    f"peak memory, {_AT_ONCE} turns of {LONG:,} words, × that of {SHORT} words", 1.5
)


async def long_streams() -> Result:
    """The peak of one process for each length of answers."""
    peaks = {words: await _peak(words) for words in (SHORT, LONG)}
    table = Table(f"{_AT_ONCE} turns at once, in one process", ("words", "peak MB"))
    for words, peak in peaks.items():
        table.add(f"{words:,}", f"{peak:.0f}")
    return Result([table], [Finding(_TARGET, Interval.exact(peaks[LONG] / peaks[SHORT]))])


async def _peak(words: int) -> float:
    async with own_database("_memory") as url:
        settings = BenchSettings(url, f"{words} words in a row")
        async with queue(settings) as beside:
            sessions = list(await beside.sessions(_AT_ONCE))
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(process, _run, settings, sessions)


def _run(settings: BenchSettings, sessions: list[str]) -> float:
    return asyncio.run(_run_turns(settings, sessions))


async def _run_turns(settings: BenchSettings, sessions: list[str]) -> float:
    """Run a turn in each session, while a reader follows it; the peak of this process, MB."""
    await warm_up()
    async with worker_context(settings) as context, context.worker:

        async def turn(session: str) -> None:
            submitted = await context.submit(session)
            async for _ in context.turns.events(submitted.id):
                pass

        _PEAK.write_text("5", encoding="ascii")  # forget the peak of the imports
        await asyncio.gather(*map(turn, sessions))
    return peak_memory(os.getpid())
