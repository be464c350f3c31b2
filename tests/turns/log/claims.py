"""Turns that a test has claimed for itself."""

from faults.turns.place import Process
from lango.core.turns.states import NewTurn
from lango.store.sessions.entries import SessionKey
from lango.store.turns.rows import Claim
from lango.store.turns.submit import SqlTurnStore
from lango.store.turns.workers import Worker, Workers


async def claimed(here: Process, session: str = "s") -> Claim:
    key = SessionKey("", here.place.app, "user", session)
    await here.store.create(key)
    submitted = await SqlTurnStore(here.store.database).submit(key, NewTurn({"text": "hi"}))
    worker = Worker(f"wrk_{here.place.app}_{session}", {here.place.app: "print"})
    await Workers(here.store.database).register(worker)
    claim = await here.engine.queue.claim(submitted.turn.session_pk, worker)
    assert claim is not None
    return claim
