"""Turns that may have killed their workers: how many run together, and which one is to blame.

A worker's death counts as a loss of every turn it ran, but a turn is given up only after deaths in
which it was the only suspect. With two losses a turn runs beside a few other suspects, with more
beside none, so that a turn that kills workers is soon identified.
"""

from __future__ import annotations

from typing import Final

import sqlalchemy as sa

from lango.core.turns.states import SUSPECT_AFTER, most_losses_beside
from lango.store.db.statement import Prepared, Row, Transaction
from lango.store.schema.tables import IS_RUNNING, turns, workers

_THIS_WORKER: Final = workers.c.id == sa.bindparam("of_worker")
_LOCK_WORKER: Final = Prepared(
    sa.select(workers.c.id, workers.c.blamed).where(_THIS_WORKER).with_for_update()
)
_BLAME: Final = Prepared(sa.update(workers).where(_THIS_WORKER))
_RUN_BY: Final = Prepared(
    sa.select(turns.c.id, turns.c.attempts, turns.c.handed_over).where(
        IS_RUNNING, turns.c.worker == sa.bindparam("by_worker"), sa.not_(turns.c.closing)
    )
)


def losses_of(row: Row) -> int:
    """How many workers a turn has lost, if no living worker runs it."""
    return row.attempts - row.handed_over


async def is_to_blame(transaction: Transaction, dead: str, turn_id: str) -> bool:
    """Whether a turn is the one to suspect for the death of its worker.

    The first takeover of one of the worker's turns decides it for all of them: later ones no
    longer see which turns ran together.
    """
    worker = await transaction.one(_LOCK_WORKER, of_worker=dead)
    if worker is None:  # it unregistered, or died so long ago that it was pruned
        return False
    blamed: str | None = worker.blamed
    if blamed is None:
        rows = await transaction.all(_RUN_BY, by_worker=dead)
        suspects = [row for row in rows if losses_of(row) > SUSPECT_AFTER] or rows
        blamed = str(suspects[0].id) if len(suspects) == 1 else ""
        await transaction.all(_BLAME, of_worker=dead, blamed=blamed)
    return blamed == turn_id


async def may_run(transaction: Transaction, worker_id: str, losses: int) -> bool:
    """Whether a worker may run a turn with `losses` lost workers beside the suspects it runs."""
    if losses < SUSPECT_AFTER:
        return True
    await transaction.one(_LOCK_WORKER, of_worker=worker_id)  # serialises its claims
    rows = await transaction.all(_RUN_BY, by_worker=worker_id)
    losses_beside = [losses_of(row) - 1 for row in rows]  # their current attempts are no losses
    return losses <= most_losses_beside(losses_beside)
