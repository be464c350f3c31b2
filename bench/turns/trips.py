"""The round trips of a whole turn, and what they cost when the database is far away."""

from __future__ import annotations

import time
from contextlib import AsyncExitStack
from statistics import median
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from bench.pg import own_database, with_port
from bench.report import Table, millis
from bench.rounds import Interval, estimate
from bench.store.wire import WireProxy
from bench.targets import Finding, Result, Target
from bench.turns.far import far_away
from bench.turns.worker_context import BenchSettings, queue, worker_context

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.turns.worker_context import WorkerContext

WHOLE_TURN: Final = Target("round trips of a turn of ten words in 0.5 s", 22, unit="")
FIRST_CALL: Final = Target("submit to first model call, database 1 ms away, ms", 14, unit="ms")
_AWAY: Final = 0.001  # seconds, each way
_TO_WARM_UP: Final = 8  # turns: statements are prepared once per connection
_APPS: Final = {"usual": "an agent", "served, usual": "an agent that is served"}


async def _turn(context: WorkerContext, session: str) -> float:
    """Run one turn; return the seconds from its submission to its model call."""
    began = time.monotonic()
    turn = await context.submit(session)
    assert (await context.turns.wait(turn.id)).state == "completed"
    return context.notes.last_call - began


async def _first_calls(context: WorkerContext, sessions: Iterator[str], turns: int) -> list[float]:
    for _ in range(_TO_WARM_UP):
        await _turn(context, next(sessions))
    return [await _turn(context, next(sessions)) for _ in range(turns)]


async def whole_turns(turns: int) -> Result:
    """Count everything that the process of a worker sends in some turns, heartbeats included."""
    table = Table("A turn of ten words in 0.5 s, with its reader", ("turn of", "round trips"))
    counted: list[float] = []
    for app, what in _APPS.items():
        async with AsyncExitStack() as stack:
            enter = stack.enter_async_context
            url = await enter(own_database("_w"))
            made = await enter(queue(BenchSettings(url)))
            sessions = iter(await made.sessions(_TO_WARM_UP + turns))
            server = urlsplit(url)
            proxy = await enter(WireProxy(server.hostname or "127.0.0.1", server.port or 5432))
            context = await enter(worker_context(BenchSettings(with_port(url, proxy.port), app)))
            await enter(context.worker)
            await _first_calls(context, sessions, 0)
            proxy.traffic.reset()
            for _ in range(turns):
                await _turn(context, next(sessions))
            counted.append(proxy.traffic.round_trips / turns)
        table.add(what, f"{counted[-1]:.1f}")
    return Result([table], [Finding(WHOLE_TURN, Interval.exact(max(counted)))])


async def first_calls(turns: int) -> Result:
    """The time to the model call, with a local database and with 1 ms of delay each way."""
    table = Table("Submit to first model call, ms (median)", ("turn of", "here", "1 ms away"))
    found: list[Interval] = []
    for app, what in _APPS.items():
        taken: list[list[float]] = []
        for delay in (0.0, _AWAY):
            async with AsyncExitStack() as stack:
                enter = stack.enter_async_context
                url = await enter(own_database("_f"))
                made = await enter(queue(BenchSettings(url)))
                sessions = iter(await made.sessions(_TO_WARM_UP + turns))
                through = await enter(far_away(url, delay)) if delay else url
                context = await enter(worker_context(BenchSettings(through, app)))
                await enter(context.worker)
                taken.append(await _first_calls(context, sessions, turns))
        table.add(what, *(millis(median(each)) for each in taken))
        found.append(estimate([1e3 * each for each in taken[-1]]))
    return Result([table], [Finding(FIRST_CALL, max(found, key=lambda each: each.point))])
