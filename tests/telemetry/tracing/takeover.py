"""A turn over two workers of which one is killed, and what its one trace must hold."""

from __future__ import annotations

import json
from collections.abc import Iterable

from tests.cli.processes import lango
from tests.support.otlp import Received, Receiver
from tests.telemetry.tracing.project import (
    CLIENT_SPAN,
    CLIENT_TRACE,
    TRACEPARENT,
    Project,
    ended,
)

ROUTE = "POST /v1/sessions/{session_id}/turns"


def only(spans: Iterable[Received], name: str, **attributes: object) -> Received:
    """The one span of a name and with these attributes."""
    found = [
        span
        for span in spans
        if span.name == name
        and all(
            span.attributes.get(key.replace("__", ".")) == value
            for key, value in attributes.items()
        )
    ]
    assert len(found) == 1, (name, attributes, [(span.name, span.attributes) for span in spans])
    return found[0]


def check_a_takeover(project: Project, traces: Receiver) -> str:
    """Kill the worker of a turn; its trace is one, from the request to the end. The turn's id."""
    project.write()
    with project.server("--no-worker") as client:
        turn = project.submit(client, 'call look {"item": "it"}', traceparent=TRACEPARENT)
        assert turn["trace_id"] == CLIENT_TRACE
        doomed = {"DIE_AT": "model.start", "DIE_TIMES": "2"}
        with project.worker(doomed) as first:
            assert first.end() == -9, first.err
        with project.worker() as second:
            done = ended(client, turn["id"])
            timeline = client.get(f"/v1/turns/{turn['id']}/timeline").json()
            second.process.terminate()
            assert second.end() == 0, second.err
    assert (done["state"], done["attempts"], done["trace_id"]) == ("completed", 2, CLIENT_TRACE)
    assert timeline["trace_id"] == CLIENT_TRACE
    assert CLIENT_TRACE in done["text"]  # the tool has asked for the current trace id
    spans = traces.of_trace(CLIENT_TRACE, ROUTE, "turn")
    _check_the_way_in(spans)
    _check_the_attempts(spans)
    _check_the_calls(spans)
    shown = lango(project.folder, "turns", "show", turn["id"], "--json")
    assert json.loads(shown.stdout)["trace_id"] == CLIENT_TRACE
    assert CLIENT_TRACE in lango(project.folder, "turns", "show", turn["id"]).stdout
    return turn["id"]


def _check_the_way_in(spans: list[Received]) -> None:
    request, turn = only(spans, ROUTE), only(spans, "turn")
    assert (request.parent, request.kind) == (CLIENT_SPAN, "SERVER")
    assert only(spans, "submit_turn").parent == request.id
    assert (turn.parent, turn.attributes["lango.turn.state"]) == (request.id, "completed")
    assert turn.attributes["lango.turn.attempts"] == 2
    assert turn.attributes["lango.turn.queue_wait"] > 0


def _check_the_attempts(spans: list[Received]) -> None:
    turn = only(spans, "turn")
    first = only(spans, "attempt", lango__attempt__number=1)
    second = only(spans, "attempt", lango__attempt__number=2)
    assert [first.parent, second.parent] == [turn.id, turn.id]
    assert (first.links, second.links) == ((), (first.id,))
    assert first.attributes["lango.attempt.outcome"] == "lost"
    assert (first.status, first.attributes["error.type"]) == ("ERROR", "WorkerLostError")
    assert (second.status, second.attributes["lango.attempt.outcome"]) == ("UNSET", "completed")
    assert turn.began <= first.began < second.began < second.ended
    assert only(spans, "close_turn").parent == second.id
    assert {span.parent for span in spans if span.name == "claim_turn"} <= {first.id, second.id}


def _check_the_calls(spans: list[Received]) -> None:
    """ADK's spans nest in the attempts; of the killed one, those that had ended have arrived."""
    by_id = {span.id: span for span in spans}
    second = only(spans, "attempt", lango__attempt__number=2)

    def is_in_second(span: Received) -> bool:
        while span.parent in by_id:
            span = by_id[span.parent]
            if span is second:
                return True
        return False

    chats = [span for span in spans if span.name == "chat demo"]
    agents = [span for span in spans if span.name == "invoke_agent shop"]
    assert [is_in_second(span) for span in sorted(chats, key=lambda span: span.began)] == [
        False,
        True,
    ]
    assert [is_in_second(span) for span in agents] == [True]
    assert not is_in_second(only(spans, "execute_tool look"))  # it ran once, in the first attempt
