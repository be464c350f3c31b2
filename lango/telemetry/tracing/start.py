"""Turns traces on, from the settings and the standard variables of OpenTelemetry."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import TYPE_CHECKING, Final, cast

from lango.core.extras import install, is_installed
from lango.core.named_code import named_code
from lango.errors import ConfigError, MissingExtraError
from lango.telemetry.tracing import current

if TYPE_CHECKING:
    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.sdk.trace.sampling import Sampler

    from lango.telemetry.tracing.content import Redact

EXTRA: Final = "telemetry"
ENDPOINT_VARIABLES: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_TRACES_PATH: Final = "/v1/traces"
_SERVICE: Final = "lango"
_DELAY_VARIABLE: Final = "OTEL_BSP_SCHEDULE_DELAY"
_DELAY_MILLISECONDS: Final = 1_000
"""A killed process loses the spans of this time; OpenTelemetry's default is five seconds."""
_PROTOCOLS: Final = ("http/protobuf",)
_PROTOCOL_VARIABLES: Final = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")


@dataclass(frozen=True, slots=True)
class TraceOptions:
    """Where traces go and what is in them; None leaves it to the standard variables."""

    endpoint: str | None = None  # the base URL of OTLP over HTTP
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    service_name: str | None = None
    sample_ratio: float | None = None
    capture_content: bool = False
    redact: str | None = None  # module:function

    @property
    def is_on(self) -> bool:
        """Whether a receiver is named, here or by a standard variable, and traces are not off."""
        if os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
            return False
        if os.environ.get("OTEL_TRACES_EXPORTER", "").lower() == "none":
            return False
        return bool(self.endpoint or any(map(os.environ.get, ENDPOINT_VARIABLES)))


def start_tracing(options: TraceOptions | None = None) -> None:
    """Turn traces on for this process, if they have a receiver and are not on yet.

    Without options, the standard variables of OpenTelemetry name the receiver. The commands of
    lango call this; a process of your own calls it once, before its first turn. Raises
    MissingExtraError without the extra; ConfigError if another part of the process has set
    OpenTelemetry's tracer provider, of which there is one.
    """
    options = options or TraceOptions()
    if not options.is_on or current.tracer() is not None:
        return
    if not is_installed(EXTRA):
        raise MissingExtraError(
            f"Traces need OpenTelemetry's SDK and its OTLP exporter: {install(EXTRA)}"
        )
    _check_protocol(options)
    redact = _hook(options.redact)
    from opentelemetry import trace
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    from lango.telemetry.tracing.content import CleanExporter
    from lango.telemetry.tracing.spans import Tracer
    from lango.telemetry.tracing.turns import DerivedIds

    if isinstance(trace.get_tracer_provider(), TracerProvider):
        raise ConfigError(
            "Another part of this process has set OpenTelemetry's tracer provider. Remove it; or "
            "`telemetry` from the settings, the variables OTEL_EXPORTER_OTLP_…ENDPOINT, and your "
            "own call of start_tracing."
        )
    exporter = CleanExporter(
        _exporter(options), captures_content=options.capture_content, redact=redact
    )
    provider = TracerProvider(
        sampler=_sampler(options.sample_ratio),
        resource=Resource.create(_resource(options.service_name)),
        id_generator=DerivedIds(),
    )
    delay = None if os.environ.get(_DELAY_VARIABLE) else _DELAY_MILLISECONDS
    provider.add_span_processor(BatchSpanProcessor(exporter, schedule_delay_millis=delay))
    trace.set_tracer_provider(provider)
    current.use_tracer(Tracer(provider, captures_content=options.capture_content))


def _check_protocol(options: TraceOptions) -> None:
    if options.endpoint is not None:
        return
    for name in _PROTOCOL_VARIABLES:
        protocol = os.environ.get(name)
        if protocol and protocol not in _PROTOCOLS:
            raise ConfigError(
                f"{name} is {protocol}, but lango sends traces by {_PROTOCOLS[0]} alone: set it to "
                "that, and the endpoint to the receiver's HTTP port, usually 4318."
            )


def _hook(name: str | None) -> Redact | None:
    if name is None:
        return None
    hook = named_code(name, lambda problem: ConfigError(f"telemetry.redact: {problem}"))
    if not callable(hook):
        raise ConfigError(f"telemetry.redact: {name} is no function.")
    return cast("Redact", hook)


def _exporter(options: TraceOptions) -> SpanExporter:
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    endpoint = options.endpoint
    if endpoint is not None and not endpoint.endswith(_TRACES_PATH):
        endpoint = endpoint.rstrip("/") + _TRACES_PATH
    return OTLPSpanExporter(endpoint=endpoint, headers=dict(options.headers) or None)


def _sampler(ratio: float | None) -> Sampler | None:
    """A request's own decision counts first; without a ratio, OTEL_TRACES_SAMPLER decides."""
    if ratio is None:
        return None
    from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased

    return ParentBased(TraceIdRatioBased(ratio))


def _resource(service_name: str | None) -> dict[str, str]:
    known = {"service.version": version("lango-adk")}
    is_named = "OTEL_SERVICE_NAME" in os.environ or "service.name=" in os.environ.get(
        "OTEL_RESOURCE_ATTRIBUTES", ""
    )
    if service_name is not None or not is_named:
        known["service.name"] = service_name or _SERVICE
    return known
