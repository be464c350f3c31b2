"""What ADK's own spans may hold: content only if the settings of traces allow it."""

from __future__ import annotations

from typing import Final

from google.adk.telemetry import ContentCapturingMode, TelemetryConfig

from lango.telemetry.tracing.current import tracer

# ADK's `experimental` would build every message of a request as an attribute, to leave it out.
_WITHOUT: Final = TelemetryConfig(
    capture_message_content=ContentCapturingMode.NO_CONTENT,
    genai_semconv_stability_opt_in="stable",
)
_WITH: Final = TelemetryConfig(
    capture_message_content=ContentCapturingMode.SPAN_ONLY,
    genai_semconv_stability_opt_in="experimental",
)


def adk_telemetry() -> TelemetryConfig | None:
    """The configuration of a run of ADK; None, for ADK's defaults, while traces are off."""
    current = tracer()
    if current is None:
        return None
    return _WITH if current.captures_content else _WITHOUT
