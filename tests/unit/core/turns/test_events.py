"""Turn events, as a log and a wire get them."""

import json
from dataclasses import fields
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lango.core.messages.streams import Usage
from lango.core.turns import events as turns
from lango.core.turns.events import Approval, ApprovalRequired, Failed, ToolFinished, TurnEvent
from lango.errors import AgentNotFoundError, RateLimitedError

APPROVAL = Approval("ask-1", "call-1", "pay", {"amount": 3}, "Really?", "payer")
USED = {"input": 1, "output": 2, "cached": 0, "reasoning": 0, "written": 0}
TOLD: list[tuple[TurnEvent, str, dict[str, object]]] = [
    (turns.Started(), "started", {"attempt": 1}),
    (turns.MessageDelta("m", "Hi"), "message.delta", {"message": "m", "text": "Hi"}),
    (turns.ReasoningDelta("m", "Hm"), "thought.delta", {"message": "m", "text": "Hm"}),
    (
        turns.MessageCompleted("m", "root", "Hi"),
        "message.completed",
        {"message": "m", "author": "root", "text": "Hi"},
    ),
    (turns.MessageReset("m"), "message.reset", {"message": "m"}),
    (
        turns.ToolStarted("c", "look", {"number": 1}),
        "tool.started",
        {"call": "c", "name": "look", "arguments": {"number": 1}},
    ),
    (
        turns.ToolProgress("c", "look", 1, 2, "left"),
        "tool.progress",
        {"call": "c", "name": "look", "current": 1, "total": 2, "text": "left"},
    ),
    (
        turns.ToolProgress("c", "look", 0.5),
        "tool.progress",
        {"call": "c", "name": "look", "current": 0.5},
    ),
    (
        ToolFinished("c", "look", {"seen": 1}),
        "tool.finished",
        {"call": "c", "name": "look", "result": {"seen": 1}, "truncated": False},
    ),
    (
        ToolFinished("c", "look", error="dark"),
        "tool.finished",
        {"call": "c", "name": "look", "error": "dark", "truncated": False},
    ),
    (
        ApprovalRequired(APPROVAL),
        "approval.required",
        {
            "approval": "ask-1",
            "call": "call-1",
            "name": "pay",
            "arguments": {"amount": 3},
            "hint": "Really?",
            "agent": "payer",
        },
    ),
    (
        turns.MessagePart("m", "ann", 1, "code", "print(1)", "python", event="e"),
        "message.part",
        {
            "message": "m",
            "author": "ann",
            "part": 1,
            "kind": "code",
            "text": "print(1)",
            "language": "python",
            "truncated": False,
            "event": "e",
        },
    ),
    (turns.AgentChanged("helper"), "agent.changed", {"agent": "helper"}),
    (
        turns.CredentialRequired(
            turns.CredentialRequest("q", "c", "files", "oauth2", "https://p/a", "bank")
        ),
        "credential.required",
        {
            "credential": "q",
            "call": "c",
            "name": "files",
            "kind": "oauth2",
            "auth_uri": "https://p/a",
            "agent": "bank",
        },
    ),
    (turns.Retrying("busy", 1.5), "retrying", {"why": "busy", "after": 1.5}),
    (turns.Completed(Usage(1, 2)), "completed", {"usage": USED}),
    (turns.Cancelled("Hel", Usage(1, 2)), "cancelled", {"text": "Hel", "usage": USED}),
    (turns.InputRequired(("c",), Usage(1, 2)), "input_required", {"calls": ["c"], "usage": USED}),
    (
        Failed(RateLimitedError("Slow down."), "Hel", Usage(1, 2)),
        "failed",
        {
            "error": {"type": "RateLimitedError", "message": "Slow down.", "retryable": True},
            "text": "Hel",
            "usage": USED,
        },
    ),
]


@pytest.mark.parametrize(("event", "kind", "data"), TOLD, ids=lambda value: str(value)[:20])
def test_what_an_event_says_on_the_wire(
    event: TurnEvent, kind: str, data: dict[str, object]
) -> None:
    assert event.type == kind
    assert event.data() == data
    assert json.loads(json.dumps(event.data())) == data


def test_every_kind_is_known_by_its_name() -> None:
    assert set(turns.KINDS) == {kind for _, kind, _ in TOLD}
    assert set(turns.KINDS.values()) == set(get_args(TurnEvent))
    assert set(turns.ENDS) == set(get_args(turns.End))


def test_every_end_says_what_it_used() -> None:
    assert all("usage" in {field.name for field in fields(end)} for end in turns.ENDS)


def test_an_error_that_is_not_ours_is_not_shown() -> None:
    data = Failed(ValueError("password=secret")).data()
    assert data["error"] == {"type": "InternalError", "message": turns.UNSAID, "retryable": False}


def test_an_error_of_ours_is_named() -> None:
    result = turns.error_data(AgentNotFoundError("ghost"))
    assert (result["type"], result["message"]) == (
        "AgentNotFoundError",
        "failed to find agent: ghost",
    )


@given(st.dictionaries(st.text(), st.binary() | st.floats() | st.text() | st.sets(st.integers())))
def test_any_result_is_json(result: dict[str, object]) -> None:
    json.dumps(ToolFinished("c", "look", result).data(), allow_nan=False)


def test_an_approval_makes_its_answer() -> None:
    answer = APPROVAL.answer(True, {"note": "fine"})
    assert (answer.call_id, answer.approved, answer.payload) == ("ask-1", True, {"note": "fine"})


def test_the_message_of_an_error_can_be_stored() -> None:
    assert turns.error_data(RateLimitedError("bad \ud83d end\x00"))["message"] == "bad � end�"
