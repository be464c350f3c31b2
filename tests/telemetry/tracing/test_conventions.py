"""Names and attributes of spans, held against OpenTelemetry's semantic conventions 1.41.0."""

from __future__ import annotations

import pytest
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes
from opentelemetry.semconv.attributes import error_attributes, http_attributes, url_attributes
from opentelemetry.semconv.schemas import Schemas

from lango.telemetry.tracing import names
from tests.support.otlp import Received, Receiver
from tests.telemetry.tracing.project import Project, ended

FOREIGN = ("lango.", "gcp.vertex.agent.")  # namespaces of our own and of ADK


def known_names() -> set[str]:
    """The attributes of the conventions that the installed package has."""
    modules = (gen_ai_attributes, error_attributes, http_attributes, url_attributes)
    known = {
        value
        for module in modules
        for name, value in vars(module).items()
        if name.isupper() and isinstance(value, str)
    }
    return known | {"db.system.name"}


def test_our_names_are_those_of_the_conventions() -> None:
    assert Schemas.V1_41_0.value == names.SCHEMA
    texts = {
        value for name, value in vars(names).items() if name.isupper() and isinstance(value, str)
    }
    ours = {text for text in texts if "." in text} - {names.SCHEMA}
    assert {name for name in ours | names.CONTENT if not name.startswith(FOREIGN)} <= known_names()
    values = vars(gen_ai_attributes)["GenAiProviderNameValues"]  # deprecated: it has moved
    providers = {each.value for each in values}
    assert set(names.PROVIDERS.values()) <= providers


def test_spans_of_a_turn(
    project: Project, traces: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RECEIVER_KEY", "of-the-receiver")
    project.write(service_name="orders", headers={"X-Key": "${RECEIVER_KEY}"})
    with project.server() as client:
        turn = project.submit(client, 'call look {"item": "it"} and call fail {"item": "it"}')
        done = ended(client, turn["id"])
        missing = client.get("/v1/turns/turn_missing")
        wrong = client.post("/openai/v1/chat/completions", json={"model": "x", "messages": []})
    spans = traces.of_trace(turn["trace_id"], "turn", "POST /v1/sessions/{session_id}/turns")
    assert done["state"] == "completed"
    assert not any("warm_up" in span.name for span in traces.spans)
    assert {span.service for span in spans} == {"orders"}
    assert {headers["x-key"] for headers in traces.headers} == {"of-the-receiver"}
    for span in spans:
        unknown = {name for name in span.attributes if not name.startswith(FOREIGN)}
        assert unknown <= known_names(), span
    _check_models([span for span in spans if span.name.startswith("chat")])
    _check_tools(spans)
    _check_agents(spans)
    assert missing.json()["trace_id"] != turn["trace_id"]
    assert traces.of_trace(wrong.json()["error"]["trace_id"], "POST /openai/v1/chat/completions")
    request = traces.of_trace(missing.json()["trace_id"], "GET /v1/turns/{turn_id}")[-1]
    assert request.attributes["http.response.status_code"] == 404
    assert request.attributes["http.route"] == "/v1/turns/{turn_id}"
    assert request.attributes["lango.request.id"] == missing.headers["X-Request-ID"]


def _check_models(chats: list[Received]) -> None:
    assert len(chats) == 2
    for chat in chats:
        assert (chat.name, chat.kind, chat.status) == ("chat demo", "CLIENT", "UNSET")
        assert chat.attributes["gen_ai.operation.name"] == "chat"
        assert chat.attributes["gen_ai.provider.name"] == "scripted"
        assert chat.attributes["gen_ai.system"] == "scripted"
        assert chat.attributes["gen_ai.request.model"] == "demo"
        assert chat.attributes["gen_ai.response.model"] == "demo"
        assert chat.attributes["gen_ai.response.finish_reasons"] == ["stop"]
        assert chat.attributes["gen_ai.usage.input_tokens"] > 0
        assert chat.attributes["gen_ai.usage.output_tokens"] > 0
        assert chat.attributes["gen_ai.conversation.id"]


def _check_tools(spans: list[Received]) -> None:
    look = next(span for span in spans if span.name == "execute_tool look")
    fail = next(span for span in spans if span.name == "execute_tool fail")
    for tool in (look, fail):
        assert tool.attributes["gen_ai.operation.name"] == "execute_tool"
        assert tool.attributes["gen_ai.tool.type"] == "function"
        assert tool.attributes["gen_ai.tool.call.id"]
        assert tool.kind == "INTERNAL"
    assert (look.status, fail.status) == ("UNSET", "ERROR")
    assert fail.attributes["error.type"] == "ValueError"
    assert fail.attributes["lango.error.id"].startswith("err_")


def _check_agents(spans: list[Received]) -> None:
    agent = next(span for span in spans if span.name == "invoke_agent shop")
    assert agent.attributes["gen_ai.operation.name"] == "invoke_agent"
    assert agent.attributes["gen_ai.agent.name"] == "shop"


def test_retries_and_a_failed_call(project: Project, traces: Receiver) -> None:
    project.write("stubborn")
    with project.server() as client:
        turn = project.submit(client, "hello")
        assert ended(client, turn["id"])["state"] == "failed"
    spans = traces.of_trace(turn["trace_id"], "turn", "chat m")
    (chat,) = (span for span in spans if span.name == "chat m")
    assert chat.attributes["lango.model_call.attempts"] == 2
    assert (chat.status, chat.attributes["error.type"]) == ("ERROR", "BadRequestError")
    failed = chat.events["lango.model_call.attempt_failed"]
    assert failed["gen_ai.request.model"] == "m"
    (whole,) = (span for span in spans if span.name == "turn")
    assert (whole.status, whole.attributes["error.type"]) == ("ERROR", "BadRequestError")
    assert b"canary" not in b"".join(traces.bodies)
