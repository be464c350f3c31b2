"""Spans of turns, attempts and steps as a process makes them, and what an exporter lets through."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBased
from opentelemetry.trace import SpanKind, Status, StatusCode

from lango.core.context.model_calls import ModelAttempt
from lango.core.messages.streams import Usage
from lango.telemetry.tracing import names
from lango.telemetry.tracing.content import CleanExporter, Redact
from lango.telemetry.tracing.models import ADK_SCOPE, provider_name
from lango.telemetry.tracing.spans import Tracer
from lango.telemetry.tracing.turns import DerivedIds, TracedTurn

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


class Kept:
    """A tracer whose spans stay here."""

    def __init__(self, *, sampled: bool = True) -> None:
        sampler = None if sampled else ParentBased(ALWAYS_OFF)
        self.provider = TracerProvider(sampler=sampler, id_generator=DerivedIds())
        self.exporter = InMemorySpanExporter()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.tracer = Tracer(self.provider)

    @property
    def spans(self) -> Sequence[ReadableSpan]:
        return self.exporter.get_finished_spans()

    def ids(self) -> list[tuple[int, int]]:
        """Of each span: its trace, and its own id."""
        contexts = [span.context for span in self.spans]
        return [(context.trace_id, context.span_id) for context in contexts if context]


def traced(turn: str = "turn_1", traceparent: str | None = PARENT) -> TracedTurn:
    return TracedTurn(turn, "app", "s1", 3, "", traceparent, 100.0, 100.0, 102.5)


def test_two_processes_make_one_trace_without_a_request() -> None:
    first, second = Kept(), Kept()
    accepted = first.tracer.traceparent("turn_1")
    first.tracer.turn(traced(traceparent=accepted)).attempt(1, {}, began=1).end("handed_over")
    spans = second.tracer.turn(traced(traceparent=None))  # accepted while traces were off
    attempt = spans.attempt(2, {}, began=2)
    attempt.end("completed")
    attempt.turn_ended(103.0, {}, "")
    (one,) = first.spans
    two, turn = second.spans
    assert {trace_id for trace_id, _ in first.ids() + second.ids()} == {first.ids()[0][0]}
    assert one.parent is not None
    assert two.parent is not None
    assert turn.parent is None
    assert {one.parent.span_id, two.parent.span_id} == {second.ids()[1][1]}
    assert [link.context.span_id for link in two.links] == [first.ids()[0][1]]
    assert one.links == ()
    assert (turn.attributes or {})[names.QUEUE_WAIT] == 2.5
    assert (turn.start_time, turn.end_time) == (100_000_000_000, 103_000_000_000)


def test_closing_a_turn_is_no_attempt() -> None:
    kept = Kept()
    spans = kept.tracer.turn(traced())
    spans.attempt(2, {}, began=1).end("handed_over")
    closing = spans.attempt(2, {}, began=2, closing="clm_1")
    closing.lost_before(1.5)
    closing.end("failed", "WorkerLostError")
    attempt, lost, closed = kept.spans
    assert kept.ids()[0] == kept.ids()[1] != kept.ids()[2]
    assert [link.context.span_id for link in closed.links] == [kept.ids()[0][1]]
    assert closed.status.status_code is StatusCode.ERROR
    assert (lost.attributes or {})[names.OUTCOME] == "lost"
    assert attempt.name == lost.name == closed.name == "attempt"


def test_an_answer_leads_to_the_turn_that_asked() -> None:
    asking, answering = Kept(), Kept()
    attempt = asking.tracer.turn(traced("turn_1", PARENT)).attempt(1, {}, began=1)
    attempt.end("input_required")
    attempt.turn_ended(103.0, {}, "")
    answering.tracer.link_to_turn("turn_1", PARENT)  # outside of a request: there is no span
    with answering.tracer.request("POST", {}, {}):
        answering.tracer.link_to_turn("turn_1", PARENT)
    [request] = answering.spans
    [link] = request.links
    assert (link.context.trace_id, link.context.span_id) == asking.ids()[1]
    assert answering.ids()[0][0] != link.context.trace_id


def test_what_the_client_did_not_sample_is_not_recorded() -> None:
    kept = Kept()
    spans = kept.tracer.turn(traced(traceparent=PARENT[:-2] + "00"))
    attempt = spans.attempt(1, {}, began=1)
    attempt.end("completed")
    attempt.turn_ended(103.0, {}, "")
    assert kept.spans == ()
    off = Kept(sampled=False)
    assert off.tracer.traceparent("turn_1").endswith("-00")
    assert kept.tracer.traceparent("turn_1").endswith("-01")


def test_steps_and_silence() -> None:
    kept = Kept()
    with kept.tracer.step("submit_turn", {}):
        assert kept.tracer.trace_id() is None
    with kept.tracer.silence(), kept.provider.get_tracer("x").start_as_current_span("warm_up"):
        pass
    assert kept.spans == ()
    with kept.tracer.request("POST", {"traceparent": PARENT}, {}) as request:
        assert kept.tracer.trace_id() == PARENT[3:35]
        assert kept.tracer.traceparent("turn_1")[:36] == PARENT[:36]
        with pytest.raises(ValueError, match="secret"), kept.tracer.step("submit_turn", {}):
            raise ValueError("secret")
        request.answered(503, "/v1/turns", "req_1")
    step, served = kept.spans
    assert (step.name, served.name) == ("submit_turn", "POST /v1/turns")
    assert step.kind is SpanKind.CLIENT
    assert served.kind is SpanKind.SERVER
    assert (step.status.description, step.events) == ("ValueError", ())
    assert (served.attributes or {})[names.ERROR_TYPE] == "503"
    assert trace.get_current_span().get_span_context().is_valid is False


def test_a_model_call_outside_of_an_agent_has_a_span_of_its_own() -> None:
    kept = Kept()
    with kept.provider.get_tracer(ADK_SCOPE).start_as_current_span("invoke_workflow x"):
        call = kept.tracer.model_call()
        call.begins(ModelAttempt("gemini", "flash", 1.0, 1.0))
        call.ended(ModelAttempt("gemini", "flash", 1.0, 2.0, usage=Usage(7, 3, cached=2)))
        call.answered("flash-001", "stop")
        call.end()
    chat, around = kept.spans
    assert (chat.name, chat.kind, around.name) == (
        "chat flash",
        SpanKind.CLIENT,
        "invoke_workflow x",
    )
    assert dict(chat.attributes or {}) == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "gcp.gemini",
        "gen_ai.system": "gcp.gemini",
        "gen_ai.request.model": "flash",
        "gen_ai.response.model": "flash-001",
        "gen_ai.response.finish_reasons": ("stop",),
        "gen_ai.usage.input_tokens": 7,
        "gen_ai.usage.output_tokens": 3,
        "gen_ai.usage.cache_read.input_tokens": 2,
    }
    assert provider_name("openai-chat") == provider_name("openai") == "openai"


def louder(name: str, text: str) -> str:
    assert name in names.CONTENT | names.EXCEPTION_CONTENT | {"status"}
    return text.upper()


def nothing(name: str, text: str) -> None:
    assert name
    assert text


@pytest.mark.parametrize(
    ("captures", "redact", "text"),
    [
        (False, None, None),
        (False, louder, None),
        (True, None, "secret"),
        (True, louder, "SECRET"),
        (True, nothing, None),
    ],
)
def test_an_exporter_cleans_spans(captures: bool, redact: Redact | None, text: str | None) -> None:
    kept = InMemorySpanExporter()
    provider = TracerProvider()
    cleaner = CleanExporter(kept, captures_content=captures, redact=redact)
    provider.add_span_processor(SimpleSpanProcessor(cleaner))
    with provider.get_tracer("anyone").start_as_current_span("work") as span:
        span.set_attributes({"gen_ai.input.messages": "secret", "kept": "yes"})
        span.record_exception(ValueError("secret"))
        span.set_status(Status(StatusCode.ERROR, "secret"))
    (sent,) = kept.get_finished_spans()
    attributes = dict(sent.attributes or {})
    assert attributes.pop("kept") == "yes"
    assert attributes == ({} if text is None else {"gen_ai.input.messages": text})
    (event,) = sent.events
    assert (event.attributes or {}).get("exception.message") == text
    assert (event.attributes or {})["exception.type"] == "ValueError"
    assert ("exception.stacktrace" in (event.attributes or {})) is (text is not None)
    assert (sent.status.status_code, sent.status.description) == (StatusCode.ERROR, text)
    assert sent.context == span.get_span_context()
    assert sent.start_time is not None
