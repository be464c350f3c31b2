"""Clients that submit turns to worker processes while a fault breaks the database."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Final

from faults.harness import Outcome
from faults.turns.clients import Clients, check_turns
from faults.turns.place import Place, Process, process
from faults.turns.processes import Crew
from faults.turns.tally import Shape

SHAPE: Final = Shape(rounds=2)
WORKERS: Final = 2
CLIENTS: Final = 6
SESSIONS: Final = 4
DEAD_AFTER: Final = 5.0


async def under_load(
    place: Place,
    drawn: random.Random,
    outcome: Outcome,
    breaking: Callable[[Process], Awaitable[None]],
    *,
    resend: bool = False,
) -> None:
    """Inject faults while clients submit and read turns; then all turns must have ended."""
    async with (
        process(place, dead_after=DEAD_AFTER) as here,
        Crew(place, WORKERS, delay=0.002, dead_after=DEAD_AFTER),
    ):
        clients = Clients(here, SHAPE, outcome, sessions=SESSIONS, resend=resend)
        talking = asyncio.create_task(clients.run(CLIENTS, random.Random(drawn.random())))
        try:
            await breaking(here)
        finally:
            clients.stop()
            await talking
        tally = await check_turns(here, clients.turns, SHAPE, outcome)
    outcome.note(str(tally))
    if resend:
        outcome.note(f"{clients.resent} times a client had to send again")
