"""G9: a PostgreSQL server is stopped in immediate mode and restarted while turns run."""

from __future__ import annotations

import asyncio
import random
import time
from typing import Final

from faults.database.own_cluster import Cluster, own_cluster
from faults.harness import Guarantee, Outcome, Run
from faults.turns.load import SHAPE, under_load
from faults.turns.workspace import TurnProcess, temporary_workspace
from lango.store.schema import migrate

_RECOVERED_WITHIN: Final = 10.0


async def _trial(run: Run) -> Outcome:
    outcome, drawn = Outcome(), random.Random(run.seed)
    with own_cluster() as cluster:
        await migrate.upgrade(cluster.url)
        with temporary_workspace(cluster.url) as workspace:

            async def breaking(process: TurnProcess) -> None:
                await _restart(cluster, process, drawn, run, outcome)

            await under_load(workspace, drawn, outcome, breaking, resend=True)
    return outcome


async def _restart(
    cluster: Cluster, process: TurnProcess, drawn: random.Random, run: Run, outcome: Outcome
) -> None:
    """Restart repeatedly; each time measure how long a turn takes once connections are accepted."""
    pauses = (5.0, 15.0) if run.timed else (1.0, 3.0)
    recovered: list[float] = []
    for number in range(run.count):
        await asyncio.sleep(drawn.uniform(*pauses))
        await asyncio.to_thread(cluster.restart)
        accepts = time.monotonic()
        turn = await process.say(SHAPE.message(f"probe{number}"), session="probes")
        state = (await process.turns.wait(turn)).state
        outcome.expect(state == "completed", f"a turn after restart {number} is {state}")
        recovered.append(time.monotonic() - accepts)
    slowest = max(recovered)
    outcome.note(f"{run.count} restarts, the slowest recovery {slowest:.1f} s")
    if run.timed:
        outcome.expect(slowest < _RECOVERED_WITHIN, f"a recovery took {slowest:.1f} s")


G9: Final = Guarantee(
    "G9",
    "the server broken off and restarted: each turn ends, nothing twice",
    full=40,
    ci=3,
    run=lambda run: asyncio.run(_trial(run)),
)
