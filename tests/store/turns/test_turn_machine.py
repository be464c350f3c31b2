"""The state machine of the queue finds what is wrong with it: faults planted one at a time."""

import sqlite3
from typing import Any

import pytest
import sqlalchemy as sa

from faults.queue import machine as queue_machine
from lango.store.db.clock import NOW
from lango.store.db.statement import Prepared
from lango.store.schema.tables import IS_QUEUED, IS_RUNNING
from lango.store.schema.tables import turns as table
from lango.store.turns import claim as turn_queue
from lango.store.turns import rows as turn_rows
from lango.store.turns import submit as turns

RUNS = 300
SEED = 7


async def _nothing(*_arguments: Any, **_values: Any) -> None:
    return None


def _never(*_arguments: Any) -> None:
    return None


async def _by_number(transaction: Any, session_pk: int) -> Any:
    statement = sa.select(table).where(table.c.session_pk == session_pk, IS_QUEUED)
    return await transaction.one(Prepared(statement.order_by(table.c.number).limit(1)))


async def _any_claim(transaction: Any, claim: Any) -> Any:
    condition = turn_rows.is_turn(claim.turn.session_pk, claim.turn.number)
    return await transaction.one(
        Prepared(sa.select(table, NOW.label("clock")).where(condition, IS_RUNNING))
    )


async def _everybody(transaction: Any, dead_after: float, one: str, other: str | None) -> Any:
    live_workers = await _find_live_workers(transaction, dead_after, one, other)
    return live_workers and turn_queue.LiveWorkers(frozenset({one}), live_workers.clock)


_find_live_workers = turn_queue.find_live_workers

FAULTS: dict[str, tuple[Any, str, Any]] = {
    "the next turn is not shown": (turn_rows, "make_ready", _nothing),
    "interrupting turns wait their turn": (turn_rows, "first_queued", _by_number),
    "interrupting turns stop nothing": (turns, "_interrupt_running", _nothing),
    "a lost claim still writes": (turn_rows, "lock_claimed", _any_claim),
    "cancelled and worn out turns are resumed": (turn_queue, "_verdict", _never),
    "answers change nothing": (turn_rows, "settle_answers", _nothing),
    "a call is answered twice": (turns, "_check_waiting", _nothing),
    "a living worker's turn is taken": (turn_queue, "find_live_workers", _everybody),
    "turns outlive their session": (turn_rows, "delete_turns", _nothing),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found(
    fault: str, sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    where, name, broken = FAULTS[fault]
    monkeypatch.setattr(where, name, broken)
    with pytest.raises((AssertionError, sqlite3.IntegrityError)):
        queue_machine.on_one_database(sqlite_url, RUNS, SEED, shrink=False)
