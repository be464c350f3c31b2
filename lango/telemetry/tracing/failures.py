"""The mark of a failed span: the class of the error, never its text, which may quote content."""

from __future__ import annotations

from opentelemetry.trace import Span, Status, StatusCode

from lango.telemetry.tracing.names import ERROR_TYPE


def fail(span: Span, error: str) -> None:
    """Mark a span as failed with the class of an error, if there is one."""
    if error:
        span.set_attribute(ERROR_TYPE, error)
        span.set_status(Status(StatusCode.ERROR, error))
