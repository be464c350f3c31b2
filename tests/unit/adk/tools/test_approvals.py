"""Answers on their way to ADK: what it could not use is refused."""

import pytest
from google.adk.events.event import Event
from google.genai import types

from lango.adk.tools.approvals import CONFIRMATION, answer_content
from lango.core.turns.events import Answer
from lango.errors import ApprovalNotFoundError, TurnConflictError


def _asked(call: str, name: str) -> Event:
    part = types.Part(function_call=types.FunctionCall(id=call, name=name, args={}))
    content = types.Content(role="model", parts=[part])
    return Event(author="agent", content=content, long_running_tool_ids={call})


def _responses(content: types.Content) -> list[tuple[str | None, str | None, object]]:
    given = [part.function_response for part in content.parts or []]
    return [(one.id, one.name, one.response) for one in given if one is not None]


def test_a_question_and_a_long_running_call_get_their_answers() -> None:
    events = [_asked("a", CONFIRMATION), _asked("b", "ship")]
    confirmed = answer_content([Answer("a", approved=True)], events)
    assert _responses(confirmed) == [("a", CONFIRMATION, {"confirmed": True})]
    shipped = answer_content([Answer("b", approved=True, payload={"ok": 1})], events)
    assert _responses(shipped) == [("b", "ship", {"ok": 1})]


@pytest.mark.parametrize("calls", [("x",), ("a", "x"), ("login",)])
def test_what_has_no_question_that_can_be_answered_is_refused(calls: tuple[str, ...]) -> None:
    events = [_asked("a", CONFIRMATION), _asked("login", "adk_request_credential")]
    with pytest.raises(ApprovalNotFoundError):
        answer_content([Answer(call, approved=True) for call in calls], events)


def test_questions_and_calls_are_not_answered_together() -> None:
    events = [_asked("a", CONFIRMATION), _asked("b", "ship")]
    with pytest.raises(TurnConflictError, match="turns of their own"):
        answer_content([Answer("a", approved=True), Answer("b", approved=True)], events)
