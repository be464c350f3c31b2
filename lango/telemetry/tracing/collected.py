"""Whether anything collects what libraries of this process report to OpenTelemetry."""

from __future__ import annotations

from typing import Final

from opentelemetry import _logs, trace

_STANDS_IN: Final = ("opentelemetry.trace", "opentelemetry._logs")
"""Modules of the API's own providers, which drop everything."""


def is_collected() -> bool:
    """Whether a part of the process has set a provider of traces or logs, lango or another."""
    providers = trace.get_tracer_provider(), _logs.get_logger_provider()
    return not all(type(provider).__module__.startswith(_STANDS_IN) for provider in providers)
