"""When traces are on, what that needs, and that they cost nothing while they are off."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lango.core import extras
from lango.errors import ConfigError, MissingExtraError
from lango.telemetry.tracing import start
from lango.telemetry.tracing.current import current_trace_id, submitted_traceparent, tracer
from lango.telemetry.tracing.start import TraceOptions, start_tracing
from tests.cli.processes import lango
from tests.support.otlp import Receiver
from tests.telemetry.tracing.project import Project

HERE = "http://127.0.0.1:9"
ON = TraceOptions(endpoint=HERE)
_OFF = """\
import asyncio, sys
from lango.app import Application
from lango.config.load import load

async def turn():
    async with Application(load()) as application:
        agent = await application.agent()
        print(await agent.run_and_collect("hello"))

asyncio.run(turn())
print([name for name in sys.modules if name.startswith(
    ("opentelemetry.exporter", "opentelemetry.sdk.trace", "lango.telemetry.tracing.spans"))])
"""


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*start.ENDPOINT_VARIABLES, "OTEL_SDK_DISABLED", "OTEL_TRACES_EXPORTER"):
        monkeypatch.delenv(name, raising=False)


def test_they_are_off_without_an_endpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not TraceOptions().is_on
    assert ON.is_on
    for name in start.ENDPOINT_VARIABLES:
        with monkeypatch.context() as patched:
            patched.setenv(name, HERE)
            assert TraceOptions().is_on


@pytest.mark.parametrize(
    ("name", "value"), [("OTEL_SDK_DISABLED", "true"), ("OTEL_TRACES_EXPORTER", "none")]
)
def test_a_variable_turns_them_off(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(name, value)
    assert not ON.is_on
    start_tracing(ON)
    assert (tracer(), current_trace_id(), submitted_traceparent("turn_1")) == (None, None, None)


def test_a_turn_without_them_imports_no_exporter(project: Project, traces: Receiver) -> None:
    project.write()
    settings = project.folder / "lango.yaml"
    settings.write_text("\n".join(settings.read_text().partition("telemetry:")[:1]))
    off = subprocess.run(
        [sys.executable, "-c", _OFF], cwd=project.folder, capture_output=True, text=True, check=True
    )
    said, imported = off.stdout.splitlines()
    assert (said, imported) == ("You said: hello", "[]")
    assert traces.spans == []


_OWN = """\
import asyncio
import lango

async def main(store):
    async with lango.Agent(model="scripted:demo", store=store) as agent:
        print(await agent.run_and_collect("hello"))

lango.start_tracing()
lango.start_tracing()
asyncio.run(main("sqlite:///own.db"))
"""


def test_a_process_of_its_own_starts_them_by_the_variables(
    tmp_path: Path, traces: Receiver
) -> None:
    for variables in ({}, {"OTEL_EXPORTER_OTLP_ENDPOINT": traces.url}):
        ran = subprocess.run(
            [sys.executable, "-c", _OWN],
            cwd=tmp_path,
            env={**os.environ, **variables},
            capture_output=True,
            text=True,
            check=False,
        )
        assert ran.stdout == "You said: hello\n", ran.stderr
    spans = traces.wait_for(lambda spans: any(span.name == "turn" for span in spans))
    assert len({span.trace for span in spans}) == 1


def test_the_extra_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(extras.PACKAGES, start.EXTRA, ("opentelemetry.no_such.package",))  # type: ignore[arg-type]
    with pytest.raises(MissingExtraError, match=r'pip install "lango-adk\[telemetry\]"'):
        start_tracing(ON)


def test_another_protocol_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", HERE)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
    with pytest.raises(ConfigError, match="4318"):
        start_tracing(TraceOptions())


@pytest.mark.parametrize("hook", ["no.such:hook", "json:no_such", "json:__doc__"])
def test_a_hook_that_is_none_is_refused(hook: str) -> None:
    with pytest.raises(ConfigError, match=r"telemetry\.redact"):
        start_tracing(TraceOptions(endpoint=HERE, redact=hook))


def test_another_provider_is_refused(tmp_path: Path) -> None:
    code = (
        "from opentelemetry import trace\n"
        "from opentelemetry.sdk.trace import TracerProvider\n"
        "trace.set_tracer_provider(TracerProvider())\n"
        "from lango.telemetry.tracing.start import TraceOptions, start_tracing\n"
        f"start_tracing(TraceOptions(endpoint={HERE!r}))\n"
    )
    refused = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert refused.returncode == 1
    assert "ConfigError: Another part of this process has set" in refused.stderr


def test_a_key_of_the_file_is_no_secret_there(project: Project) -> None:
    project.write(headers={"Authorization": "literal"})
    refused = lango(project.folder, "config", "show")
    assert refused.returncode == 1
    assert "telemetry.headers.Authorization: a secret does not belong" in refused.stderr


def test_what_is_not_sampled_is_not_sent(project: Project, traces: Receiver) -> None:
    project.write(sample_ratio=0.0)
    assert lango(project.folder, "run", "hello").returncode == 0
    project.write()  # the standard variable decides, and all is sent
    assert lango(project.folder, "run", "hello again").returncode == 0
    spans = traces.wait_for(lambda spans: any(span.name == "turn" for span in spans))
    assert len({span.trace for span in spans}) == 1
