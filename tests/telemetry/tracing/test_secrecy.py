"""What spans hold of what was said: nothing, unless the settings say so; then what a hook lets."""

from __future__ import annotations

import json

import pytest

from tests.support.otlp import Received, Receiver
from tests.telemetry.tracing.project import Project, ended

MESSAGE = 'call look {"item": "canary-1"} and call fail {"item": "canary-2"}'


def spans_of(project: Project, traces: Receiver) -> list[Received]:
    """The spans of a turn in which the user, the model and two tools say `canary`."""
    with project.server() as client:
        turn = project.submit(client, MESSAGE, authorization="Bearer canary-key")
        assert "canary" in ended(client, turn["id"])["text"]
    return traces.of_trace(turn["trace_id"], "turn", "execute_tool look", "execute_tool fail")


def test_nothing_that_was_said_is_in_spans(
    project: Project, traces: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ADK_CAPTURE_MESSAGE_CONTENT_IN_SPANS", "true")
    monkeypatch.setenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "SPAN_AND_EVENT")
    monkeypatch.setenv("ADK_TELEMETRY_IGNORE_RUN_CONFIG", "true")  # ADK then captures content
    monkeypatch.setenv("RECEIVER_KEY", "canary-of-the-receiver")
    project.write(headers={"Authorization": "${RECEIVER_KEY}"})
    assert len(spans_of(project, traces)) > 8
    assert b"canary" not in b"".join(traces.bodies)


def test_one_setting_captures_content(project: Project, traces: Receiver) -> None:
    project.write(capture_content=True)
    spans = spans_of(project, traces)
    chats = sorted((span for span in spans if span.name == "chat demo"), key=lambda s: s.began)
    asked = json.loads(chats[0].attributes["gen_ai.input.messages"])
    assert asked[0]["parts"][0]["content"] == MESSAGE
    assert "canary" in chats[1].attributes["gen_ai.output.messages"]
    look = next(span for span in spans if span.name == "execute_tool look")
    assert json.loads(look.attributes["gen_ai.tool.call.arguments"]) == {"item": "canary-1"}
    assert "result-canary-1" in look.attributes["gen_ai.tool.call.result"]


def test_a_hook_redacts(project: Project, traces: Receiver) -> None:
    project.write(capture_content=True, redact="traced_shop:redact")
    spans = spans_of(project, traces)
    chat = next(span for span in spans if span.name == "chat demo")
    assert "[hidden]-1" in chat.attributes["gen_ai.input.messages"]
    tools = [span for span in spans if span.name.startswith("execute_tool")]
    assert all("gen_ai.tool.call.result" not in span.attributes for span in tools)
    assert b"canary" not in b"".join(traces.bodies)


def test_a_hook_that_fails_lets_nothing_through(project: Project, traces: Receiver) -> None:
    project.write(capture_content=True, redact="traced_shop:broken")
    assert spans_of(project, traces)
    assert b"canary" not in b"".join(traces.bodies)
