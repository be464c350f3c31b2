"""The tracer: spans of requests and of the store's steps, and the parents of turns."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from typing import Final

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.trace import (
    NonRecordingSpan,
    Span,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
)
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from lango.telemetry.tracing import names
from lango.telemetry.tracing.failures import fail
from lango.telemetry.tracing.ids import TraceParent
from lango.telemetry.tracing.models import ModelSpan
from lango.telemetry.tracing.turns import Attributes, TracedTurn, TurnSpans, own_trace, turn_span

SCOPE: Final = "lango"
_FLUSH_MILLISECONDS: Final = 5_000
_SERVER_ERROR: Final = 500
_NOWHERE: Final = 1  # the ids of a span that is never sent
_PROPAGATOR: Final = TraceContextTextMapPropagator()


class Tracer:
    """Starts spans. There is one for each process: see `current.py`."""

    def __init__(self, provider: TracerProvider, *, captures_content: bool = False) -> None:
        self._provider = provider
        self._tracer = provider.get_tracer(SCOPE, version("lango-adk"), schema_url=names.SCHEMA)
        self.captures_content = captures_content
        """Whether prompts, answers and tool data go into spans."""

    def trace_id(self) -> str | None:
        """The id of the running task's trace; None outside of one."""
        context = trace.get_current_span().get_span_context()
        return f"{context.trace_id:032x}" if context.is_valid else None

    def traceparent(self, turn_id: str) -> str:
        """The parent of a turn that is being accepted: the running span, else the turn's own."""
        context = trace.get_current_span().get_span_context()
        if not context.is_valid:
            return str(own_trace(self._provider, turn_id))
        return str(TraceParent(context.trace_id, context.span_id, context.trace_flags.sampled))

    @contextmanager
    def request(
        self, method: str, headers: Mapping[str, str], attributes: Attributes
    ) -> Generator[RequestSpan]:
        """The span of an HTTP request; it continues the trace in the request's `traceparent`."""
        span = self._tracer.start_span(
            method,
            _PROPAGATOR.extract(headers, Context()),
            SpanKind.SERVER,
            {names.METHOD: method, **attributes},
        )
        with trace.use_span(
            span, end_on_exit=True, record_exception=False, set_status_on_exception=False
        ):
            yield RequestSpan(span, method)

    @contextmanager
    def step(self, name: str, attributes: Attributes) -> Generator[None]:
        """A step of the store within a traced request or attempt; elsewhere there is no span."""
        if not trace.get_current_span().is_recording():
            yield
            return
        with self._tracer.start_as_current_span(
            name,
            kind=SpanKind.CLIENT,
            attributes=attributes,
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                yield
            except Exception as error:
                fail(span, type(error).__name__)
                raise

    @contextmanager
    def silence(self) -> Generator[None]:
        """Trace nothing within the block."""
        context = SpanContext(_NOWHERE, _NOWHERE, is_remote=False)  # which is not sampled
        with trace.use_span(NonRecordingSpan(context)):
            yield

    def model_call(self) -> ModelSpan:
        """The span of a model call that begins now."""
        return ModelSpan(self._tracer)

    def tool_failed(self, error: Exception, error_id: str) -> None:
        """Mark the span of the running tool as failed: ADK sees only the answer to the model."""
        span = trace.get_current_span()
        if isinstance(span, ReadableSpan) and span.name.startswith(names.EXECUTE_TOOL):
            fail(span, type(error).__name__)
            span.set_attribute(names.ERROR_ID, error_id)

    def note_error(self, error_id: str) -> None:
        """Add the id of an error to the running span."""
        trace.get_current_span().set_attribute(names.ERROR_ID, error_id)

    def link_to_turn(self, turn_id: str, traceparent: str | None) -> None:
        """Link the running span, if there is one, to the span of a turn in another trace."""
        span = trace.get_current_span()
        if span.is_recording():
            span.add_link(turn_span(self._provider, turn_id, traceparent))

    def turn(self, turn: TracedTurn) -> TurnSpans:
        """The spans of a turn."""
        return TurnSpans(self._provider, self._tracer, turn)

    def flush(self) -> None:
        """Send the spans that have ended; blocks until they are sent, for 5 s at most."""
        self._provider.force_flush(_FLUSH_MILLISECONDS)


class RequestSpan:
    """The span of an HTTP request, while it is served."""

    def __init__(self, span: Span, method: str) -> None:
        self._span = span
        self._method = method

    def answered(self, status: int, route: str | None, request_id: str) -> None:
        """Name the span by its route, and add the status of the answer, 0 if there was none."""
        if request_id:
            self._span.set_attribute(names.REQUEST_ID, request_id)
        if route is not None:
            self._span.update_name(f"{self._method} {route}")
            self._span.set_attribute(names.ROUTE, route)
        if status:
            self._span.set_attribute(names.STATUS, status)
        if status >= _SERVER_ERROR:
            self._span.set_attribute(names.ERROR_TYPE, str(status))
            self._span.set_status(Status(StatusCode.ERROR))
