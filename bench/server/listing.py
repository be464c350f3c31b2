"""Many sessions listed page by page over HTTP: whether the last page costs what the first did."""

from __future__ import annotations

import time
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

from bench.pg import own_database
from bench.report import Table, micros
from bench.rounds import Sample, cpu, divide, estimate, interleave, wall
from bench.server.contenders import SESSIONS, ours
from bench.server.http_client import Request, ask
from bench.store.ours import Lango
from bench.targets import Finding, Result, Target

if TYPE_CHECKING:
    from bench.server.contenders import Contender

COUNT: Final = 10_000
PAGE: Final = 50
LAST: Final = Target(f"last page of {COUNT:,} sessions, × the first", 1.2)
_REQUESTS: Final = 100  # a round
# Copies of one row have its age: here one session was active each minute.
_SPREAD: Final = "update sessions set last_activity = last_activity - pk * interval '1 minute'"


async def _page(server: Contender, cursor: str | None) -> dict[str, Any]:
    where = f"{SESSIONS}?limit={PAGE}" + (f"&cursor={cursor}" if cursor else "")
    request = Request(where, headers=server.api.new_session.headers)
    return (await ask(server.server.base, request)).json()


async def _last_cursor(server: Contender) -> tuple[str, float]:
    """The cursor of the last page, and the seconds to reach it."""
    began, cursor, seen = time.monotonic(), None, 0
    while True:
        page = await _page(server, cursor)
        seen += len(page["sessions"])
        if page["next"] is None:
            break
        cursor = page["next"]
    assert cursor is not None
    assert (seen, len(page["sessions"])) == (COUNT, PAGE)
    return cursor, time.monotonic() - began


async def _round(server: Contender, cursor: str | None) -> Sample:
    used, began = server.server.cpu, time.monotonic()
    for _ in range(_REQUESTS):
        await _page(server, cursor)
    seconds = time.monotonic() - began
    return Sample(seconds / _REQUESTS, (server.server.cpu - used) / _REQUESTS)


async def _fill(url: str, server: Contender) -> None:
    lango = Lango(url)
    await lango.sessions(COUNT - 1)  # including the copied one
    await lango.close()
    assert server.database is not None
    await server.database.execute(_SPREAD)
    await server.database.execute("vacuum analyze sessions")


async def pages(rounds: int) -> Result:
    """The first page and the last one, in the same rounds."""
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        url = await stack.enter_async_context(own_database("_list"))
        server = await stack.enter_async_context(ours(folder, url))
        await _fill(url, server)
        last, walk = await _last_cursor(server)
        ways = {"first": partial(_round, server, None), "last": partial(_round, server, last)}
        samples = await interleave(ways, rounds)
    table = Table(
        f"{COUNT:,} sessions in pages of {PAGE}, all of them in {walk:.1f} s "
        f"(median of {rounds} rounds)",
        ("page", "µs", "× first", "the server's CPU µs", "CPU × first"),
    )
    first = samples["first"]
    walls = {name: estimate(divide(wall(s), wall(first))) for name, s in samples.items()}
    cpus = {name: estimate(divide(cpu(s), cpu(first))) for name, s in samples.items()}
    for name, series in samples.items():
        table.add(
            *(name, micros(median(wall(series))), walls[name]),
            *(micros(median(cpu(series))), cpus[name]),
        )
    return Result([table], [Finding(LAST, walls["last"])])
