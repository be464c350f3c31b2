"""Many turns of one `lango serve` that wait for a slow model, each with a reading client."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

from bench.pg import own_database
from bench.report import Table
from bench.server.contenders import ours
from bench.server.gate import FIGURES, OPEN, OPEN_ONE_BY_ONE, RESET, WAIT
from bench.server.http_client import PATIENCE, Reply, ask
from bench.server.load import new_sessions
from bench.server.process import memory, peak_memory
from bench.targets import Result
from bench.turns.crowd import ANSWERS, stalled

if TYPE_CHECKING:
    from bench.server.contenders import Contender
    from bench.targets import Finding

WAITING: Final = 1_000
QUICK_WAITING: Final = 200
_BESIDE: Final = 10  # spare turns and streams, for the requests that read figures
_LOOK_EVERY: Final = 0.5
_ANSWERS: Final = dict(zip((OPEN_ONE_BY_ONE, OPEN), ANSWERS.values(), strict=True))
_COLUMNS: Final = (
    *(
        "the model answers",
        "MB before",
        "MB while they wait",
        "KB a turn",
        "peak MB",
        "connections",
    ),
    *("worst stall until all wait, ms CPU", "until all are over"),
)


async def _turn(server: Contender, session: str, message: str) -> Reply:
    reply = await ask(server.server.base, server.api.turn(session, message))
    if server.api.end not in reply.raw:
        raise ValueError(reply.raw.decode())
    return reply


async def _send_command(server: Contender, message: str) -> dict[str, Any]:
    """Send a command to the gate; return the figures it answers with."""
    reply = await _turn(server, await server.session(), message)
    (event,) = [line for line in reply.raw.splitlines() if b'"type":"message.completed"' in line]
    return json.loads(json.loads(event.partition(b":")[2])["text"])


async def _all_wait(server: Contender, turns: int) -> dict[str, Any]:
    """The server's figures once this number of turns waits."""
    while True:
        figures = await _send_command(server, FIGURES)
        if figures["waiting"] >= turns:
            return figures
        await asyncio.sleep(_LOOK_EVERY)


@dataclass(frozen=True, slots=True)
class _Crowd:
    """The memory of waiting turns, MB, and the server's figures when all waited and after."""

    before: float
    held: float
    peak: float
    connections: int
    full: dict[str, Any]
    after: dict[str, Any]


async def _crowd(turns: int, opened: str) -> _Crowd:
    most = turns + _BESIDE
    streams = ("max_streams", "max_streams_per_tenant", "max_streams_per_key")
    limits = ", ".join(f"{name}: {most}" for name in streams)
    settings = f"worker: {{concurrency: {most}}}\nserver: {{{limits}}}\n"
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        enter = stack.enter_async_context
        url = await enter(own_database("_crowd"))
        server = await enter(ours(folder, url, agent="bench.server.gate:make", more=settings))
        pid = server.server.pid
        sessions = await new_sessions(server, turns)
        await _send_command(server, RESET)
        before = memory(pid)
        clients = [asyncio.create_task(_turn(server, each, WAIT)) for each in sessions]
        async with asyncio.timeout(PATIENCE):
            full = await _all_wait(server, turns)
            held, connections = memory(pid), len(await server.database_cpu())
            await _send_command(server, opened)
            await asyncio.gather(*clients)
        after = await _send_command(server, FIGURES)
        return _Crowd(before, held, peak_memory(pid), connections, full, after)


async def waiting(turns: int) -> Result:
    """Measure a server in which this many turns wait for the model, until all are answered."""
    table = Table(
        f"{turns:,} turns that wait for their model in one `lango serve`, all read", _COLUMNS
    )
    findings: list[Finding] = []
    for opened, how in _ANSWERS.items():
        crowd = await _crowd(turns, opened)
        held = (crowd.held - crowd.before) / turns * 1e3
        table.add(
            *(how, f"{crowd.before:.0f}", f"{crowd.held:.0f}", f"{held:.0f}", f"{crowd.peak:.0f}"),
            crowd.connections,
            *(f"{each['worst_stall'] * 1e3:.0f}" for each in (crowd.full, crowd.after)),
        )
        findings.append(stalled(turns, how, crowd.after["worst_stall"]))
    return Result([table], findings)
