"""What leaves the process: spans without content, or with the content that the hook lets through.

This holds for every span of the process, those of ADK and of other libraries too.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.trace import SpanKind, Status
from opentelemetry.util.types import AttributeValue

from lango.telemetry.tracing import names
from lango.telemetry.tracing.models import ADK_SCOPE

logger = logging.getLogger(__name__)

Redact = Callable[[str, str], str | None]
"""Gets the name of an attribute and its text; returns the text to send, or None to leave it out."""

_STATUS: Final = "status"
_FUNCTION: Final = "function"


class CleanExporter(SpanExporter):
    """Passes spans on to another exporter without content, or with redacted content.

    It runs on the exporter's thread, so a slow hook delays spans and never a turn.
    """

    def __init__(
        self, exporter: SpanExporter, *, captures_content: bool, redact: Redact | None = None
    ) -> None:
        self._exporter = exporter
        self._captures_content = captures_content
        self._redact = redact

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Send the spans, cleaned."""
        return self._exporter.export([self._clean(span) for span in spans])

    def shutdown(self) -> None:
        """Close the exporter."""
        self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Send what waits."""
        return self._exporter.force_flush(timeout_millis)

    def _clean(self, span: ReadableSpan) -> ReadableSpan:
        attributes = span.attributes or {}
        is_adk = span.instrumentation_scope is not None and (
            span.instrumentation_scope.name == ADK_SCOPE
        )
        has_content = not names.CONTENT.isdisjoint(attributes) or bool(span.events)
        if not (is_adk or has_content or span.status.description):
            return span
        kind, described = span.kind, self._attributes(attributes, names.CONTENT)
        if is_adk:
            kind, described = _conventional(kind, described)
        return ReadableSpan(
            name=span.name,
            context=span.context,
            parent=span.parent,
            resource=span.resource,
            attributes=described,
            events=[self._event(event) for event in span.events],
            links=span.links,
            kind=kind,
            status=self._status(span.status, attributes),
            start_time=span.start_time,
            end_time=span.end_time,
            instrumentation_scope=span.instrumentation_scope,
        )

    def _attributes(
        self, attributes: Mapping[str, AttributeValue], content: frozenset[str]
    ) -> dict[str, AttributeValue]:
        sent: dict[str, AttributeValue] = {}
        for name, value in attributes.items():
            allowed = self._allowed(name, str(value)) if name in content else value
            if allowed is not None:
                sent[name] = allowed
        return sent

    def _event(self, event: Event) -> Event:
        content = names.CONTENT | names.EXCEPTION_CONTENT
        described = self._attributes(event.attributes or {}, content)
        return Event(event.name, described, event.timestamp)

    def _status(self, status: Status, attributes: Mapping[str, AttributeValue]) -> Status:
        """The status; its text is often an error's, which may quote anything."""
        text = status.description
        if text is not None and text != attributes.get(names.ERROR_TYPE):
            text = self._allowed(_STATUS, text)
        return Status(status.status_code, text)

    def _allowed(self, name: str, text: str) -> str | None:
        """The text to send of one that may hold content; None for none."""
        if not self._captures_content:
            return None
        if self._redact is None:
            return text
        try:
            return self._redact(name, text)
        except Exception:
            logger.exception("telemetry.redact failed: the span is sent without %s.", name)
            return None


def _conventional(
    kind: SpanKind, attributes: dict[str, AttributeValue]
) -> tuple[SpanKind, dict[str, AttributeValue]]:
    """A span of ADK by the conventions: a client's span for a model, the type of a tool."""
    if attributes.get(names.OPERATION) == names.CHAT:
        return SpanKind.CLIENT, attributes
    if names.TOOL_TYPE in attributes:  # ADK's is the name of a Python class
        return kind, attributes | {names.TOOL_TYPE: _FUNCTION}
    return kind, attributes
