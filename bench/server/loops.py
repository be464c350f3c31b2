"""`lango serve` on uvloop beside `lango serve` on asyncio's own event loop, for record 14."""

from __future__ import annotations

from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

from bench.measures import run
from bench.pg import own_database
from bench.report import Table, millis
from bench.rounds import cpu, divide, estimate, interleave, wall
from bench.server.contenders import ours
from bench.server.load import Rounds
from bench.server.sides import CLIENTS, WORDS
from bench.targets import Result

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from bench.server.contenders import Contender

_ROUNDS: Final = 10
_QUICK_ROUNDS: Final = 3
_AT_MOST: Final = 1_200.0
_ASYNCIO: Final = "asyncio"
_UVLOOP: Final = "uvloop"
_MISSING: Final = 'raise ImportError("not here")\n'


@asynccontextmanager
async def _servers() -> AsyncGenerator[dict[str, Contender]]:
    """One server on each loop; one of them finds a uvloop that cannot be imported."""
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        made: dict[str, Contender] = {}
        for name in (_ASYNCIO, _UVLOOP):
            folder = Path(stack.enter_context(TemporaryDirectory()))
            if name == _ASYNCIO:
                (folder / "uvloop.py").write_text(_MISSING, encoding="utf-8")
            url = await enter(own_database(f"_{name}"))
            made[name] = await enter(ours(folder, url, first=folder))
            if _has_uvloop(made[name].server.pid) != (name == _UVLOOP):
                raise RuntimeError(f"The server meant for {name} runs on the other loop.")
        yield made


def _has_uvloop(pid: int) -> bool:
    return "uvloop" in Path(f"/proc/{pid}/maps").read_text(encoding="utf-8")


async def _compared(rounds: int, clients: int) -> Result:
    each = CLIENTS[clients]
    async with _servers() as servers:
        ways = {name: Rounds(server, clients, each, WORDS).run for name, server in servers.items()}
        samples = await interleave(ways, rounds)
    table = Table(
        f"Clients at a time: {clients}, {WORDS} words a turn (median of {rounds} rounds)",
        ("event loop", "CPU ms a turn", "× asyncio's", "ms a turn", "× asyncio's"),
    )
    base = samples[_ASYNCIO]
    for name, series in samples.items():
        ratios = [estimate(divide(measure(series), measure(base))) for measure in (cpu, wall)]
        used, took = (millis(median(measure(series))) for measure in (cpu, wall))
        table.add(name, used, ratios[0], took, ratios[1])
    return Result([table], [])


async def main(*, quick: bool) -> int:
    """Run it; the exit code."""
    rounds = _QUICK_ROUNDS if quick else _ROUNDS
    return await run("loops", [partial(_compared, rounds, n) for n in (1, 50)], _AT_MOST)
