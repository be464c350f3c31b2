"""What ADK's own spans may hold: content only if the settings of traces allow it."""

from __future__ import annotations

from typing import Final

from google.adk.telemetry import ContentCapturingMode, TelemetryConfig

from lango.telemetry.tracing.collected import is_collected
from lango.telemetry.tracing.current import tracer

# ADK's `experimental`, its default, builds every message of each request as an attribute, even if
# content is left out and nothing collects spans.
_WITHOUT: Final = TelemetryConfig(
    capture_message_content=ContentCapturingMode.NO_CONTENT,
    genai_semconv_stability_opt_in="stable",
)
_WITH: Final = TelemetryConfig(
    capture_message_content=ContentCapturingMode.SPAN_ONLY,
    genai_semconv_stability_opt_in="experimental",
)


def adk_telemetry() -> TelemetryConfig | None:
    """The configuration of a run of ADK; None, for ADK's defaults, if only others collect spans."""
    current = tracer()
    if current is not None and current.captures_content:
        return _WITH
    return None if current is None and is_collected() else _WITHOUT
