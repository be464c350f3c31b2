"""The store through PgBouncer in transaction mode beside the store on the database itself."""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import TYPE_CHECKING, Final

from bench.measures import run
from bench.pg import connect, own_database
from bench.report import Table, micros
from bench.rounds import MIN_ROUNDS, Stopwatch, cpu, divide, estimate, interleave, wall
from bench.store.append import open_writers, rounder
from bench.store.ours import Lango
from bench.targets import Finding, Result, Target
from bench.turns.worker_context import BenchSettings, worker_context
from tests.support.databases import give_settings, through
from tests.support.pgbouncer import pgbouncer, version

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping

    from bench.rounds import Sample
    from bench.turns.worker_context import WorkerContext

_DIRECT: Final = "direct"
_OF_DATABASE: Final = "PgBouncer, settings of the database"
_OF_TRANSACTION: Final = "PgBouncer, settings of each transaction"
_LIMIT: Final = 1.15
_IDLE_SESSIONS: Final = 2_000  # PostgreSQL plans for the current table sizes
_IN_A_ROW: Final = 60
_TOGETHER: Final = 768
_TURNS: Final = 8
_POOL_SIZE: Final = 20
_AT_MOST: Final = 900.0


@dataclass(frozen=True, slots=True)
class Way:
    """One connection path to its own database, and that database's URL."""

    url: str
    lango: Lango


class Ways:
    """The three connection paths, open during the run."""

    def __init__(self) -> None:
        self._stack = AsyncExitStack()
        self.all: dict[str, Way] = {}

    async def __aenter__(self) -> Ways:
        for number, name in enumerate((_DIRECT, _OF_DATABASE, _OF_TRANSACTION)):
            url = await self._stack.enter_async_context(own_database(f"_{number}"))
            await Lango.prepare(url)
            if name != _DIRECT:
                port = self._stack.enter_context(pgbouncer(url, pool_size=_POOL_SIZE))
                url = through(url, port)
            if name == _OF_DATABASE:
                await give_settings(url)
            self.all[name] = Way(url, Lango(url))
            self._stack.push_async_callback(self.all[name].lango.close)
            await self._settle(self.all[name])
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    @staticmethod
    async def _settle(way: Way) -> None:
        await way.lango.sessions(_IDLE_SESSIONS)
        connection = await connect(way.url)
        await connection.execute("vacuum analyze")
        await connection.close()

    async def append(self, writers: int, operations: int, rounds: int) -> Result:
        """Appends by several writers, each in its own session."""
        rounders = {
            name: rounder(await open_writers(way.lango, writers), operations)
            for name, way in self.all.items()
        }
        what = f"append, {writers} at once" if writers > 1 else "append, one at a time"
        return _result(what, await interleave(rounders, rounds), rounds)

    async def turn(self, rounds: int) -> Result:
        """Durable turns whose model answers at once, one after another."""
        async with AsyncExitStack() as stack:
            rounders: dict[str, Callable[[], Awaitable[Sample]]] = {}
            for name, way in self.all.items():
                context = await stack.enter_async_context(
                    worker_context(BenchSettings(way.url, "instant"))
                )
                await stack.enter_async_context(context.worker)
                sessions = iter(await way.lango.sessions((rounds + 1) * _TURNS))
                rounders[name] = partial(_turns, context, sessions)
            return _result("durable turn", await interleave(rounders, rounds), rounds)


async def _turns(context: WorkerContext, sessions: Iterator[str]) -> Sample:
    batch = [next(sessions) for _ in range(_TURNS)]
    watch = Stopwatch(_TURNS)
    with watch:
        for session in batch:
            turn = await context.submit(session)
            assert (await context.turns.wait(turn.id)).state == "completed"
    return watch.sample


def _result(what: str, samples: Mapping[str, list[Sample]], rounds: int) -> Result:
    release = ".".join(map(str, version()))
    table = Table(
        f"{what}, PgBouncer {release} (median of {rounds} rounds)",
        ("way", "µs", "× direct", "client CPU µs", "CPU × direct"),
    )
    plain = samples[_DIRECT]
    walls = {name: estimate(divide(wall(each), wall(plain))) for name, each in samples.items()}
    for name, each in samples.items():
        used = estimate(divide(cpu(each), cpu(plain)))
        table.add(name, micros(median(wall(each))), walls[name], micros(median(cpu(each))), used)
    target = Target(f"{what} through PgBouncer, × direct", _LIMIT)
    return Result([table], [Finding(target, walls[_OF_DATABASE])])


async def main(*, quick: bool) -> int:
    """Run it; the exit code."""
    rounds = MIN_ROUNDS if quick else 2 * MIN_ROUNDS
    async with Ways() as ways:
        measures = [
            partial(ways.append, 1, _IN_A_ROW, rounds),
            partial(ways.append, 16, _TOGETHER, rounds),
            partial(ways.turn, rounds),
        ]
        return await run("pooled", measures, _AT_MOST)
