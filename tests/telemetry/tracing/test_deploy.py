"""One trace for a turn whose worker is replaced while a tool runs."""

from __future__ import annotations

from tests.support.otlp import Received, Receiver
from tests.telemetry.tracing.project import CLIENT_SPAN, CLIENT_TRACE, TRACEPARENT, Project, ended


def test_a_deploy_leaves_no_span_without_its_parent(project: Project, traces: Receiver) -> None:
    project.drain = 0.1
    project.write()
    with project.server("--no-worker") as client:
        with project.worker() as old:
            turn = project.submit(client, "call hold {}", traceparent=TRACEPARENT)
            with client.stream("GET", f"/v1/turns/{turn['id']}/events") as events:
                next(line for line in events.iter_lines() if line == "event: tool.started")
            old.process.terminate()
            assert old.end() == 0, old.err
        (project.folder / "go").touch()
        with project.worker() as new:
            done = ended(client, turn["id"])
            new.process.terminate()
            assert new.end() == 0, new.err
    assert (done["state"], done["attempts"]) == ("completed", 2)
    traces.of_trace(CLIENT_TRACE, "POST /v1/sessions/{session_id}/turns", "turn", "chat demo")
    spans = [span for span in traces.spans if span.trace == CLIENT_TRACE]
    assert {span.parent for span in spans} - {span.id for span in spans} == {CLIENT_SPAN}
    first, second = _named(spans, "attempt")
    assert first.attributes["lango.attempt.outcome"] == "handed_over"
    assert (first.links, second.links) == ((), (first.id,))
    assert len(_named(spans, "execute_tool hold")) == 2
    assert first.status == "UNSET"


def _named(spans: list[Received], name: str) -> list[Received]:
    return sorted((span for span in spans if span.name == name), key=lambda span: span.began)
