"""G7: the server ends connections while turns run and clients submit and read."""

from __future__ import annotations

import asyncio
import random
from typing import Final

from faults.harness import Guarantee, Outcome, Run
from faults.turns.load import under_load
from faults.turns.workspace import temporary_workspace
from lango.store.db.database import Database
from tests.support.databases import temporary_postgres

_BACKENDS: Final = """
select pid, state from pg_stat_activity
where datname = current_database() and backend_type = 'client backend' and pid <> pg_backend_pid()
order by pid"""
_END: Final = "select pg_terminate_backend($1)"


async def _trial(run: Run) -> Outcome:
    outcome, drawn = Outcome(), random.Random(run.seed)
    # Its own database: the fault must not end connections of another test.
    async with temporary_postgres(run.databases.postgres) as url:
        with temporary_workspace(url) as workspace:
            breaking = _end_backends(url, drawn, run.count, outcome)
            await under_load(workspace, drawn, outcome, lambda _: breaking)
    return outcome


async def _end_backends(url: str, drawn: random.Random, count: int, outcome: Outcome) -> None:
    """End connections of this database one by one; every second one is executing a statement."""
    database = Database(url, pool_size=1)
    ended = busy = 0
    try:
        while ended < count:
            await asyncio.sleep(drawn.uniform(0.02, 0.2))
            backends = await database.fetch(_BACKENDS)
            at_work = [each for each in backends if each["state"] != "idle"]
            chosen = drawn.choice((drawn.random() < 0.5 and at_work) or backends or [None])
            if chosen is not None and (await database.fetch(_END, chosen["pid"]))[0][0]:
                ended += 1
                busy += chosen["state"] != "idle"
    finally:
        await database.close()
    outcome.note(f"{ended} connections ended, {busy} of them at work")


G7: Final = Guarantee(
    "G7",
    "connections ended by the server: no client notices, each turn ends, nothing twice",
    full=500,
    ci=50,
    run=lambda run: asyncio.run(_trial(run)),
)
