"""What ADK builds for spans, by who collects them."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.cli.processes import PATIENCE

# In a process of its own: OpenTelemetry's providers are set once.
_SHOW = """
from lango.adk.traces import adk_telemetry
{before}
config = adk_telemetry()
print(None if config is None else config.genai_semconv_stability_opt_in)
"""
_SPANS = """
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
trace.set_tracer_provider(TracerProvider())
"""
_LOGS = """
from opentelemetry import _logs
from opentelemetry.sdk._logs import LoggerProvider
_logs.set_logger_provider(LoggerProvider())
"""
_OURS = """
from lango.telemetry.tracing.start import TraceOptions, start_tracing
start_tracing(TraceOptions("http://127.0.0.1:1"{content}))
"""


@pytest.mark.parametrize(
    ("before", "shown"),
    [
        pytest.param("", "stable", id="nothing collects: messages are not built as attributes"),
        pytest.param(_OURS.format(content=""), "stable", id="lango, without content"),
        pytest.param(
            _OURS.format(content=", capture_content=True"), "experimental", id="lango, with content"
        ),
        pytest.param(_SPANS, "None", id="another part collects spans: ADK's defaults"),
        pytest.param(_LOGS, "None", id="another part collects logs: ADK's defaults"),
    ],
)
def test_what_adk_builds(before: str, shown: str) -> None:
    command = [sys.executable, "-c", _SHOW.format(before=before)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.split() == [shown]
