"""The settings of what processes report to their operators."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, SecretStr

from lango.config.secrets import SecretText
from lango.config.section import Section


class TelemetrySettings(Section):
    """Traces by OpenTelemetry; off without an endpoint, here or in a variable of OpenTelemetry."""

    endpoint: str | None = Field(
        default=None,
        pattern=r"^https?://[^\s?#]+$",
        description=(
            "The base URL of an OTLP receiver over HTTP, such as http://127.0.0.1:4318; null: "
            "OTEL_EXPORTER_OTLP_ENDPOINT, and without that no traces."
        ),
    )
    protocol: Literal["http/protobuf"] = Field(
        default="http/protobuf", description="The protocol of the receiver."
    )
    headers: dict[str, SecretText] = Field(
        default_factory=dict[str, SecretStr],
        description="Headers for the receiver, each as `${NAME}` or `${file:path}`.",
    )
    service_name: str | None = Field(
        default=None, description="The service's name in traces; null: OTEL_SERVICE_NAME, or lango."
    )
    sample_ratio: float | None = Field(
        default=None,
        ge=0,
        le=1,
        description=(
            "The part of turns to trace, unless the client has decided; null: OTEL_TRACES_SAMPLER, "
            "or all."
        ),
    )
    capture_content: bool = Field(
        default=False, description="Whether spans hold prompts, answers and data of tools."
    )
    redact: str | None = Field(
        default=None,
        pattern=r"^[\w.]+:[\w.]+$",
        description=(
            "module:function that gets the name and the text of each such attribute and returns "
            "the text to send, or None."
        ),
    )
