"""The half of the queue's state machine that submits turns."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any, ClassVar, Final, TypeVar

from hypothesis.stateful import RuleBasedStateMachine

from faults.harness import new_tenant
from faults.queue.client import QueueClient, entry
from faults.queue.model import Model, ModelSession, ModelTurn
from lango.core.ids import new_id
from lango.core.turns.states import Busy, NewTurn
from lango.errors import (
    CallNotFoundError,
    Fenced,
    SessionBusyError,
    TurnConflictError,
    TurnNotFoundError,
)
from lango.store.sessions.entries import SessionKey, SessionRef
from lango.store.turns.submit import Submitted

T = TypeVar("T")

CALLS: Final = ("call-1", "call-2")
BUSY: Final[list[Busy]] = ["enqueue", "enqueue", "enqueue", "reject", "interrupt"]
SOON: Final = timedelta(days=1)


class Submitting(RuleBasedStateMachine):
    """Two tenants and two apps on two clients: sessions, and submitted turns."""

    runner: ClassVar[asyncio.Runner]
    clients: ClassVar[list[QueueClient]] = []

    def __init__(self) -> None:
        super().__init__()
        self.model = Model()
        self.tenants = [new_tenant(), new_tenant()]
        self.apps = [new_id("app"), new_id("app")]
        self.events = 0
        for tenant, app in ((0, 0), (1, 0), (0, 1)):
            self.create(SessionKey(self.tenants[tenant], self.apps[app], "ada", "one"))

    def run(self, doing: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(doing)

    def session(self, dice: Random) -> ModelSession:
        return dice.choice(self.model.existing_sessions())

    def client(self, dice: Random) -> QueueClient:
        return dice.choice(self.clients)

    # --- sessions ---------------------------------------------------------------------------

    def create(self, key: SessionKey) -> None:
        stored = self.run(self.clients[0].sessions.create(key))
        self.model.sessions.append(ModelSession(key, stored.pk))

    def delete(self, dice: Random) -> None:
        """Delete a session, and create another of the same name."""
        session = self.session(dice)
        self.run(self.client(dice).sessions.delete(session.key))
        session.deleted = True
        self.create(session.key)

    def append_without_a_turn(self, dice: Random) -> None:
        session = self.session(dice)
        self._append(dice, session, None, good=session.running is None)

    def _append(
        self, dice: Random, session: ModelSession, epoch: int | None, *, good: bool
    ) -> None:
        self.events += 1
        event_id = f"event-{self.events}"
        store = self.client(dice).sessions
        try:
            self.run(store.append(SessionRef(session.key, session.pk), entry(event_id), epoch))
        except Fenced:
            assert not good
            assert epoch is not None
        except SessionBusyError:
            assert not good
            assert epoch is None
        else:
            assert good
            session.messages.append(event_id)

    # --- submitting -------------------------------------------------------------------------

    def submit(self, dice: Random) -> None:
        session = self.session(dice)
        busy = dice.choice(BUSY)
        key = dice.choice([None, None, "k1", "k2"])
        text = dice.choice(["a", "b"])
        when = dice.choice(["now", "now", "now", "due", "later"])
        run_at = {"now": None, "due": datetime.now(UTC) - SOON, "later": datetime.now(UTC) + SOON}
        new = NewTurn({"text": text}, idempotency_key=key, run_at=run_at[when])
        known = session.known(key)
        refused = known is None and busy == "reject" and when == "now" and session.busy
        try:
            submitted = self.run(self.client(dice).turns.submit(session.key, new, busy=busy))
        except TurnConflictError:
            assert known is not None
            assert known.text != text
        except SessionBusyError:
            assert refused
        else:
            assert not refused
            self._accepted(session, submitted, new, known, busy, due=when == "due")

    def _accepted(
        self,
        session: ModelSession,
        submitted: Submitted,
        new: NewTurn,
        known: ModelTurn | None,
        busy: Busy,
        *,
        due: bool = False,
    ) -> None:
        turn = submitted.turn
        assert submitted.repeated == (known is not None)
        if known is not None:
            assert (turn.id, turn.input["text"]) == (known.id, known.text)
            return
        assert turn.number == len(session.turns) + 1
        assert submitted.wakes == (turn.state == "queued" and not session.busy)
        assert turn.state == ("queued" if new.run_at is None else "scheduled")
        text, key = new.input["text"], new.idempotency_key
        accepted = ModelTurn(turn.id, turn.number, text, turn.invocation_id, turn.state, due=due)
        accepted.answers, accepted.key = turn.answers, key
        session.accept(accepted, busy)

    def answer(self, dice: Random) -> None:
        waiting = [each for each in self.model.turns() if each[1].waits_for]
        if not waiting:
            return
        session, turn = dice.choice(waiting)
        call = dice.choice(CALLS)
        key = dice.choice([None, None, "k1"])
        known = session.known(key)
        refusal = None if known is not None else _refusal(session, turn.invocation, call)
        new = NewTurn({"text": "yes"}, idempotency_key=key)
        tenant = session.key.tenant
        answering = self.client(dice).turns.answer(tenant, turn.id, call, new)
        if refusal is not None:
            self._refused(answering, refusal)
            return
        try:
            submitted = self.run(answering)
        except TurnConflictError:
            assert known is not None
            return
        self._accepted(session, submitted, new, known, "enqueue")
        if known is not None:
            return
        assert submitted.turn.invocation_id == turn.invocation
        session.settle(turn.invocation)
        second = self.client(dice).turns.answer(tenant, turn.id, call, NewTurn({"text": "again"}))
        self._refused(second, TurnConflictError)

    def cancel(self, dice: Random) -> None:
        turns = list(self.model.turns())
        if not turns:
            return
        session, turn = dice.choice(turns)
        tenant = session.key.tenant
        stranger = next(each for each in self.tenants if each != tenant)
        self._refused(self.client(dice).turns.cancel(stranger, turn.id), TurnNotFoundError)
        cancelled = self.run(self.client(dice).turns.cancel(tenant, turn.id))
        session.cancel(turn)
        assert (cancelled.state, cancelled.cancel_requested) == (turn.state, turn.cancel)

    def _refused(self, doing: Coroutine[Any, Any, Any], kind: type[Exception]) -> None:
        try:
            self.run(doing)
        except kind:
            return
        raise AssertionError(f"no {kind.__name__}")

    def promote(self, dice: Random) -> None:
        self.run(self.client(dice).queue.promote_due(100_000))
        for session in self.model.existing_sessions():
            session.promote()


def _refusal(session: ModelSession, invocation: str, call: str) -> type[Exception] | None:
    """The error that refuses an answer to a call, if any."""
    if call in session.answered(invocation):
        return TurnConflictError
    if call in session.waited(invocation):
        return None
    return SessionBusyError if session.is_open(invocation) else CallNotFoundError
