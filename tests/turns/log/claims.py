"""Turns that a test has claimed for itself."""

from faults.turns.workspace import TurnProcess
from lango.core.turns.states import NewTurn
from lango.store.sessions.entries import SessionKey
from lango.store.turns.claim import TurnQueue
from lango.store.turns.rows import Claim
from lango.store.turns.submit import SqlTurnStore
from lango.store.turns.workers import Worker, Workers

ALIVE = 3600.0
"""Seconds for which a worker that a test plays counts as alive: it sends no heartbeats."""


async def claimed(process: TurnProcess, session: str = "s") -> Claim:
    key = SessionKey("", process.workspace.app, "user", session)
    await process.store.create(key)
    submitted = await SqlTurnStore(process.store.database).submit(key, NewTurn({"text": "hi"}))
    worker = Worker(f"wrk_{process.workspace.app}_{session}", {process.workspace.app: "print"})
    return await claim_as(process, worker, submitted.turn.session_pk)


async def claim_as(process: TurnProcess, worker: Worker, session_pk: int) -> Claim:
    """Register a worker, and let it claim the work of a session."""
    await Workers(process.store.database).register(worker)
    claim = await TurnQueue(process.store.database, dead_after=ALIVE).claim(session_pk, worker)
    assert claim is not None
    return claim
