"""The spans of an attempt and of the turn that it closes; nothing while traces are off."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from lango.core.turns.events import End, Failed, Started
from lango.store.turns.log import LoggedEvent
from lango.store.turns.rows import Claim, Turn
from lango.telemetry.tracing import names
from lango.telemetry.tracing.current import tracer

if TYPE_CHECKING:
    from lango.telemetry.tracing.turns import AttemptSpan, TracedTurn

HANDED_OVER: Final = "handed_over"
"""The outcome of an attempt that ends before its turn, for another worker to go on."""


class AttemptTrace:
    """The spans of one attempt. `began` is when its worker began to claim it (ns), if known."""

    __slots__ = ("_claim", "_has_reported", "_is_lost", "_span")

    def __init__(self, claim: Claim, began: int, database: str) -> None:
        current = tracer()
        self._claim = claim
        self._is_lost = self._has_reported = False
        self._span: AttemptSpan | None = None
        if current is not None:
            self._span = current.turn(_traced(claim.turn)).attempt(
                claim.turn.attempts,
                {names.WORKER: claim.worker},
                began=began or time.time_ns(),
                closing="" if claim.verdict is None else claim.id,
            )
            if began:
                self._span.step(names.CLAIM, began, {names.DATABASE: database})

    def enter(self) -> None:
        """Make its span that of the running task and of the tasks it starts."""
        if self._span is not None:
            self._span.enter()

    def lose(self) -> None:
        """Note that another worker has the turn, and reports this attempt."""
        self._is_lost = True

    def report_loss(self, logged: Sequence[LoggedEvent]) -> None:
        """Record the attempt before, from its start in the log, if its worker is lost."""
        if self._span is None or self._claim.lost_for is None or self._has_reported:
            return
        self._has_reported = True  # closing a turn may be tried again
        began = [event.at for event in logged if event.type == Started.type]
        index = -1 if self._claim.verdict is not None else -2  # the last one is this attempt
        if len(began) >= -index:
            self._span.lost_before(began[index])

    def end(self, end: End | None, closed: Turn | None) -> None:
        """End the span, and record that of the turn if this attempt has closed it."""
        if self._span is None or self._is_lost:
            return  # the span of a lost attempt is its successor's to record
        error = type(end.error).__name__ if isinstance(end, Failed) else ""
        if closed is None or closed.ended is None:
            self._span.end(HANDED_OVER)
            return
        self._span.end(closed.state, error)
        attributes = {names.TURN_STATE: closed.state, names.TURN_ATTEMPTS: closed.attempts}
        if isinstance(end, Failed) and end.error_id:
            attributes[names.ERROR_ID] = end.error_id
        self._span.turn_ended(closed.ended, attributes, error)


def link_answer(asking_turn: Turn) -> None:
    """Link the request that answers a turn's calls to the trace of that turn."""
    current = tracer()
    if current is not None:
        current.link_to_turn(asking_turn.id, asking_turn.traceparent)


def _traced(turn: Turn) -> TracedTurn:
    from lango.telemetry.tracing.turns import TracedTurn

    return TracedTurn(
        id=turn.id,
        app=turn.session.app_name,
        session=turn.session.session_id,
        number=turn.number,
        tenant=turn.session.tenant,
        traceparent=turn.traceparent,
        created=turn.created,
        ready=max(turn.created, turn.run_at or 0.0),
        started=turn.started,
    )
