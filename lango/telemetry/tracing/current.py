"""The tracer of this process, if traces are on. While they are off, OpenTelemetry is not used."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lango.telemetry.tracing.spans import Tracer

_tracer: Tracer | None = None


def tracer() -> Tracer | None:
    """The tracer of this process; None while traces are off."""
    return _tracer


def use_tracer(new: Tracer | None) -> None:
    """Set the tracer of this process, or turn traces off."""
    global _tracer  # one for each process, as OpenTelemetry's own provider
    _tracer = new


def silence() -> AbstractContextManager[None]:
    """Trace nothing within the block."""
    return nullcontext() if _tracer is None else _tracer.silence()


def current_trace_id() -> str | None:
    """The id (32 hex digits) of the trace that the running task belongs to; None if there is none.

    For log lines, problems and error reports.
    """
    return None if _tracer is None else _tracer.trace_id()


def submitted_traceparent(turn_id: str) -> str | None:
    """The `traceparent` that a turn is stored with when it is accepted; None if traces are off."""
    return None if _tracer is None else _tracer.traceparent(turn_id)
