"""Cancelling a turn: write it into the database, then inform workers and readers."""

from __future__ import annotations

from lango.store.turns.rows import Turn
from lango.store.turns.submit import SqlTurnStore
from lango.turns.engine.protocol import Engine
from lango.turns.wake import STOP


async def cancel_turn(turns: SqlTurnStore, engine: Engine, tenant: str, turn_id: str) -> Turn:
    """Cancel a turn that has not started, ask a running one to stop; ended turns stay as is."""
    turn = await turns.cancel(tenant, turn_id)
    if turn.state == "running":
        engine.wakes.notify(STOP)
        return turn
    engine.wakes.notify(turn.id)
    if turn.state == "cancelled":
        engine.withdraw(turn.id)
    engine.dispatch()
    return turn
