"""Many turns that wait for a slow model in one `lango serve`, each with a client that reads it."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

from bench.pg import own_database
from bench.report import Table
from bench.rounds import Interval
from bench.server_contenders import ours
from bench.server_gate import FIGURES, OPEN, RESET, WAIT
from bench.server_http import PATIENCE, Reply, ask
from bench.server_load import new_sessions
from bench.server_process import memory, peak_memory
from bench.targets import Finding, Result, Target
from bench.turn_crowd import STALL

if TYPE_CHECKING:
    from bench.server_contenders import Contender

WAITING: Final = 1_000
QUICK_WAITING: Final = 200
_BESIDE: Final = 10  # turns and streams beside those that wait: whoever asks how it stands
_LOOK_EVERY: Final = 0.5
_COLUMNS: Final = (
    *("MB before", "MB while they wait", "KB a turn", "peak MB", "connections"),
    *("worst stall until all wait, ms CPU", "until all are over"),
)


async def _turn(server: Contender, session: str, said: str) -> Reply:
    reply = await ask(server.server.base, server.api.turn(session, said))
    if server.api.end not in reply.raw:
        raise ValueError(reply.raw.decode())
    return reply


async def _told(server: Contender, said: str) -> dict[str, Any]:
    """What the model answers to somebody who does not wait."""
    reply = await _turn(server, await server.session(), said)
    (event,) = [line for line in reply.raw.splitlines() if b'"type":"message.completed"' in line]
    return json.loads(json.loads(event.partition(b":")[2])["text"])


async def _all_wait(server: Contender, turns: int) -> dict[str, Any]:
    """How the server stands once so many wait."""
    while True:
        figures = await _told(server, FIGURES)
        if figures["waiting"] >= turns:
            return figures
        await asyncio.sleep(_LOOK_EVERY)


async def waiting(turns: int) -> Result:
    """A server in which so many turns wait for their model, until all are answered at once."""
    settings = (
        f"worker: {{concurrency: {turns + _BESIDE}}}\nserver: {{max_streams: {turns + _BESIDE}}}\n"
    )
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        enter = stack.enter_async_context
        url = await enter(own_database("_crowd"))
        server = await enter(ours(folder, url, agent="bench.server_gate:make", more=settings))
        pid = server.server.pid
        sessions = await new_sessions(server, turns)
        await _told(server, RESET)
        before = memory(pid)
        clients = [asyncio.create_task(_turn(server, each, WAIT)) for each in sessions]
        async with asyncio.timeout(PATIENCE):
            full = await _all_wait(server, turns)
            held, connections = memory(pid), len(await server.database_cpu())
            await _told(server, OPEN)
            await asyncio.gather(*clients)
        after = await _told(server, FIGURES)
        peak = peak_memory(pid)
    table = Table(
        f"{turns:,} turns that wait for their model in one `lango serve`, all read", _COLUMNS
    )
    table.add(
        *(f"{before:.0f}", f"{held:.0f}", f"{(held - before) / turns * 1e3:.0f}", f"{peak:.0f}"),
        connections,
        *(f"{each['worst_stall'] * 1e3:.0f}" for each in (full, after)),
    )
    stall = Target(f"{turns:,} turns wait: {STALL.what}", STALL.limit, unit=STALL.unit)
    return Result([table], [Finding(stall, Interval.exact(after["worst_stall"] * 1e3))])
