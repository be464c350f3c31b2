"""Measures the turns of a worker, from the events of its attempts."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lango.core.turns.events import (
    End,
    Event,
    Failed,
    MessageCompleted,
    MessageDelta,
    ToolFinished,
    ToolStarted,
    error_data,
)
from lango.store.turns.rows import Claim, Turn
from lango.turns.log.feeds import AttemptBegun, AttemptOver

if TYPE_CHECKING:
    from lango.telemetry.metrics.recorder import AttemptCause, Recorder


@dataclass(slots=True)
class _Measured:
    """An attempt while it runs. Times are those of the monotonic clock."""

    began: float
    waited: float | None  # seconds before the turn's first claim; None once its text has come
    calls: dict[str, float] = field(default_factory=dict[str, float])  # when each began


class TurnMetrics:
    """Passes the events of a worker's attempts to the recorder of its process."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._running: dict[str, _Measured] = {}  # by turn

    def observe(self, turn: Turn, item: AttemptBegun | Event | AttemptOver) -> None:
        """Measure what an event says."""
        if isinstance(item, AttemptBegun):
            self._begin(item.claim)
            return
        measured = self._running.get(turn.id)
        if measured is None:
            return
        if isinstance(item, MessageDelta | MessageCompleted):
            if measured.waited is not None:
                self._first_word(turn, measured)
        elif isinstance(item, ToolStarted):
            measured.calls[item.call] = time.monotonic()
        elif isinstance(item, ToolFinished):
            self._tool_finished(measured, item)
        elif isinstance(item, AttemptOver):
            del self._running[turn.id]
            if item.end is not None:
                self._ended(turn, measured, item.end)

    def _begin(self, claim: Claim) -> None:
        turn, queue_time = claim.turn, None
        if claim.verdict is None:  # else it is only closed
            lost_for = claim.lost_for if claim.resumes else None
            self._recorder.attempt_began(turn.session.app_name, _cause(claim), lost_for)
            if turn.attempts == 1 and turn.started is not None:
                queue_time = max(turn.started - max(turn.created, turn.run_at or 0.0), 0.0)
                self._recorder.turn_started(turn.session.app_name, queue_time)
        self._running[turn.id] = _Measured(time.monotonic(), queue_time)

    def _first_word(self, turn: Turn, measured: _Measured) -> None:
        delay = (measured.waited or 0.0) + time.monotonic() - measured.began
        measured.waited = None
        self._recorder.first_word(turn.session.app_name, delay)

    def _tool_finished(self, measured: _Measured, item: ToolFinished) -> None:
        began = measured.calls.pop(item.call, None)
        took = None if began is None else time.monotonic() - began
        # An error without an id may be ADK's own, for a tool that does not exist.
        ran = item.error is None or item.error_id is not None
        self._recorder.tool_called(item.name, took, failed=item.error is not None, ran=ran)

    def _ended(self, turn: Turn, measured: _Measured, end: End) -> None:
        error = str(error_data(end.error)["type"]) if isinstance(end, Failed) else ""
        took = time.monotonic() - measured.began
        self._recorder.turn_ended(turn.session.app_name, end.type, error, took)


def _cause(claim: Claim) -> AttemptCause:
    if claim.turn.attempts == 1:
        return "new"
    return "worker_lost" if claim.lost_for is not None else "handed_over"
