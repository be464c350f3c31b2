"""The settings of metrics, `metrics`."""

from __future__ import annotations

from pydantic import Field

from lango.config.section import Section

DEFAULT_PORT = 9464
"""The port that OpenTelemetry's exporters for Prometheus use by default."""


class MetricsSettings(Section):
    """Metrics for Prometheus, at `/metrics` of a port that clients do not reach."""

    enabled: bool = Field(
        default=False, description="Whether processes measure themselves and answer `/metrics`."
    )
    host: str = Field(
        default="127.0.0.1", description="The address of `lango serve`'s port for metrics."
    )
    port: int = Field(
        default=DEFAULT_PORT, ge=0, le=65535, description="That port; 0 for any that is free."
    )
