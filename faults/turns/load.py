"""Clients that submit turns to worker processes while a fault breaks the database."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Final

from faults.harness import Outcome
from faults.turns.clients import Clients, check_turns
from faults.turns.processes import Crew
from faults.turns.tally import Shape
from faults.turns.workspace import TurnProcess, Workspace, turn_process

SHAPE: Final = Shape(rounds=2)
WORKERS: Final = 2
CLIENTS: Final = 6
SESSIONS: Final = 4
DEAD_AFTER: Final = 5.0


async def under_load(
    workspace: Workspace,
    drawn: random.Random,
    outcome: Outcome,
    breaking: Callable[[TurnProcess], Awaitable[None]],
    *,
    resend: bool = False,
) -> None:
    """Inject faults while clients submit and read turns; then all turns must have ended."""
    async with (
        turn_process(workspace, dead_after=DEAD_AFTER) as process,
        Crew(workspace, WORKERS, delay=0.002, dead_after=DEAD_AFTER),
    ):
        clients = Clients(process, SHAPE, outcome, sessions=SESSIONS, resend=resend)
        talking = asyncio.create_task(clients.run(CLIENTS, random.Random(drawn.random())))
        try:
            await breaking(process)
        finally:
            clients.stop()
            await talking
        tally = await check_turns(process, clients.turns, SHAPE, outcome)
    outcome.note(str(tally))
    if resend:
        outcome.note(f"{clients.resent} times a client had to send again")
