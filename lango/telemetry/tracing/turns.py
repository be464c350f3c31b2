"""The spans of a turn: one of the turn itself, and one of each attempt at it, by any worker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final

from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    Span,
    SpanContext,
    SpanKind,
    TraceFlags,
)
from opentelemetry.util.types import AttributeValue

from lango.telemetry.tracing import names
from lango.telemetry.tracing.failures import fail
from lango.telemetry.tracing.ids import TraceParent, span_id_of, trace_id_of_turn

Attributes = Mapping[str, AttributeValue]

_NANOSECONDS: Final = 1_000_000_000
_LOST: Final = "lost"
_LOST_ERROR: Final = "WorkerLostError"
_chosen: ContextVar[TraceParent | None] = ContextVar("lango_chosen_ids", default=None)


class DerivedIds(RandomIdGenerator):
    """Random ids, except for the spans whose ids every process can derive."""

    def generate_span_id(self) -> int:
        """The id chosen for the span that starts now, or a random one."""
        chosen = _chosen.get()
        return super().generate_span_id() if chosen is None else chosen.span_id

    def generate_trace_id(self) -> int:
        """The trace chosen for the span that starts now, or a random one."""
        chosen = _chosen.get()
        return super().generate_trace_id() if chosen is None else chosen.trace_id


@dataclass(frozen=True, slots=True)
class TracedTurn:
    """What the spans of a turn say of it. Times are epoch seconds."""

    id: str
    app: str
    session: str
    number: int
    tenant: str
    traceparent: str | None  # as it was accepted with
    created: float
    ready: float  # when it could have begun: once accepted, or due
    started: float | None

    @property
    def attributes(self) -> dict[str, AttributeValue]:
        """The attributes of all its spans."""
        known: dict[str, AttributeValue] = {
            names.TURN_ID: self.id,
            names.APP: self.app,
            names.CONVERSATION: self.session,
        }
        return known | {names.TENANT: self.tenant} if self.tenant else known


class TurnSpans:
    """The spans of one turn; their ids follow from its id."""

    def __init__(self, provider: TracerProvider, tracer: trace.Tracer, turn: TracedTurn) -> None:
        self._tracer = tracer
        self._turn = turn
        parent = TraceParent.parse(turn.traceparent) or own_trace(provider, turn.id)
        self._parent = parent
        self._trace = parent.trace_id
        self._sampled = parent.sampled

    def attempt(
        self, number: int, attributes: Attributes, *, began: int, closing: str = ""
    ) -> AttemptSpan:
        """Start the span of an attempt at the time `began` (ns); it links to the attempt before.

        With `closing`, a claim's id, it only closes the turn after attempt `number`.
        """
        own = self._of(closing) if closing else self._of(number)
        last = number if closing else number - 1
        return AttemptSpan(self, last, self._start_attempt(own, number, last, attributes, began))

    def lost_attempt(self, number: int, began: float) -> None:
        """Record the span of an attempt whose worker died, or lost the turn, before its end."""
        own, outcome = self._of(number), {names.OUTCOME: _LOST}
        span = self._start_attempt(own, number, number - 1, outcome, _ns(began))
        fail(span, _LOST_ERROR)
        span.end()

    def ended(self, at: float, attributes: Attributes, error: str) -> None:
        """Record the span of the turn itself, from its acceptance to its end."""
        turn, own = self._turn, self._of()
        described = {
            **turn.attributes,
            names.TURN_NUMBER: turn.number,
            names.QUEUE_WAIT: max((turn.started or at) - turn.ready, 0.0),
            **attributes,
        }
        above = Context() if self._parent == own else _context_of(self._parent)
        span = self._start(names.TURN, own, above, described, _ns(turn.created))
        fail(span, error)
        span.end(_ns(max(at, turn.created)))

    def step(self, within: Span, name: str, began: int, attributes: Attributes) -> None:
        """Record a step of the store within another span, from a time (ns) until now."""
        context = trace.set_span_in_context(within, Context())
        self._tracer.start_span(name, context, SpanKind.CLIENT, attributes, start_time=began).end()

    def _of(self, *names_of_span: object) -> TraceParent:
        """The span of the turn, or of a part of it."""
        span_id = span_id_of(self._turn.id, *names_of_span)
        return TraceParent(self._trace, span_id, self._sampled)

    def _start_attempt(
        self, own: TraceParent, number: int, last: int, attributes: Attributes, began: int
    ) -> Span:
        links = [Link(_span_context(self._of(last)))] if last > 0 else []
        described = {**self._turn.attributes, names.ATTEMPT_NUMBER: number, **attributes}
        return self._start(names.ATTEMPT, own, _context_of(self._of()), described, began, links)

    def _start(
        self,
        name: str,
        own: TraceParent,
        above: Context,
        attributes: Attributes,
        began: int,
        links: Sequence[Link] = (),
    ) -> Span:
        """Start a span with its derived ids."""
        token = _chosen.set(own)
        try:
            return self._tracer.start_span(
                name, above, attributes=attributes, links=links, start_time=began
            )
        finally:
            _chosen.reset(token)


class AttemptSpan:
    """The span of an attempt, while it runs."""

    def __init__(self, spans: TurnSpans, last: int, span: Span) -> None:
        self._spans = spans
        self._last = last  # the number of the attempt before
        self._span = span

    def enter(self) -> None:
        """Make it the running task's span, for the rest of the task."""
        otel_context.attach(trace.set_span_in_context(self._span, Context()))

    def step(self, name: str, began: int, attributes: Attributes) -> None:
        """Record a step of the store that began at a time (ns) and ends now."""
        self._spans.step(self._span, name, began, attributes)

    def end(self, outcome: str, error: str = "") -> None:
        """End it, with the class of the error that ended the turn."""
        self._span.set_attribute(names.OUTCOME, outcome)
        fail(self._span, error)
        self._span.end()

    def lost_before(self, began: float) -> None:
        """Record the attempt before this one, whose worker is lost."""
        self._spans.lost_attempt(self._last, began)

    def turn_ended(self, at: float, attributes: Attributes, error: str) -> None:
        """Record the span of the turn, which this attempt has closed."""
        self._spans.ended(at, attributes, error)


def own_trace(provider: TracerProvider, turn_id: str) -> TraceParent:
    """The turn's span in a trace of its own, for a turn that no traced request has submitted."""
    trace_id = trace_id_of_turn(turn_id)
    sampled = provider.sampler.should_sample(None, trace_id, names.TURN)
    return TraceParent(trace_id, span_id_of(turn_id), sampled.decision.is_sampled())


def turn_span(provider: TracerProvider, turn_id: str, traceparent: str | None) -> SpanContext:
    """The span of a turn, recorded or not, by the `traceparent` that it is stored with."""
    parent = TraceParent.parse(traceparent) or own_trace(provider, turn_id)
    return _span_context(TraceParent(parent.trace_id, span_id_of(turn_id), parent.sampled))


def _ns(seconds: float) -> int:
    return int(seconds * _NANOSECONDS)


def _span_context(span: TraceParent) -> SpanContext:
    flags = TraceFlags(TraceFlags.SAMPLED if span.sampled else TraceFlags.DEFAULT)
    return SpanContext(span.trace_id, span.span_id, is_remote=True, trace_flags=flags)


def _context_of(span: TraceParent) -> Context:
    return trace.set_span_in_context(NonRecordingSpan(_span_context(span)), Context())
