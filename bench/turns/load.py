"""Turns submitted at a steady rate, and what they leave in the database."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from itertools import cycle
from typing import TYPE_CHECKING, Final

from bench.server.process import cpu_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.pg import Connection
    from bench.turns.worker_context import Queue, WorkerContext

_SUBMITS: Final = 32  # concurrent submits: a late submitter must not open a task for each turn
_BACKENDS: Final = "select pid from pg_stat_activity where datname = current_database()"
_STATES: Final = """
select count(*), count(*) filter (where state = 'completed'), count(*) filter (where ended is null)
from turns
"""


@dataclass(frozen=True, slots=True)
class Tally:
    """The turns of a database."""

    submitted: int
    completed: int
    still_open: int

    @property
    def lost(self) -> int:
        """Turns that ended otherwise than completed."""
        return self.submitted - self.completed - self.still_open


async def tally(queue: Queue) -> Tally:
    """Count the turns."""
    return Tally(*await queue.row(_STATES))


async def submit_steadily(
    context: WorkerContext, sessions: Sequence[str], rate: float, seconds: float
) -> tuple[int, int]:
    """Submit `rate` turns a second, evenly; returns how many were accepted, and how many failed.

    The sessions take turns. A submit that is late is made up for: the rate is that of the arrivals,
    whatever the database does.
    """
    slots, failures = asyncio.Semaphore(_SUBMITS), 0
    turns, names = round(rate * seconds), cycle(sessions)
    began = time.monotonic()

    async def submit(session: str) -> None:
        nonlocal failures
        try:
            await context.submit(session)
        except Exception as error:  # noqa: BLE001 - counted, and shown
            failures += 1
            print(f"A turn was not accepted: {error!r}", flush=True)
        finally:
            slots.release()

    async with asyncio.TaskGroup() as group:
        for number in range(turns):
            await asyncio.sleep(began + number / rate - time.monotonic())
            await slots.acquire()
            group.create_task(submit(next(names)))
    return turns - failures, failures


async def backend_cpu(connection: Connection) -> dict[int, float]:
    """CPU seconds of the server's processes that serve this database, by their ids."""
    rows = await connection.fetch(_BACKENDS)
    return {row["pid"]: cpu_of(row["pid"]) for row in rows}
