"""ADK's questions to people, its long-running calls, and the answers to both."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from google.adk.events.event import Event
from google.genai import types

from lango.adk.credentials.kinds import CREDENTIAL, asked_call_id, asked_config
from lango.core.turns.events import Answer, Approval
from lango.core.values import JsonObject, storable_json
from lango.errors import ApprovalNotFoundError, CallNotFoundError, TurnConflictError

CONFIRMATION: Final = "adk_request_confirmation"
"""The call by which ADK asks whether a tool may run."""
INPUT: Final = "adk_request_input"
"""The call by which a Workflow's node asks a person for something."""
QUESTIONS: Final = frozenset({CONFIRMATION, INPUT, CREDENTIAL})
History = Sequence[Event]
"""The events of a session, for layers that know nothing of ADK."""
_STOCK_HINT: Final = "Please approve or reject the tool call "
"""The beginning of ADK's own hint, which is for programs, not for people."""


@dataclass(frozen=True, slots=True)
class Question:
    """A question in a session."""

    approval: Approval
    question: str  # the name of ADK's call: CREDENTIAL is answered with a credential
    turn: str  # the invocation that waits
    is_open: bool = True


def approval_of(call: types.FunctionCall, agent: str) -> Approval | None:
    """The approval that a call asks a person for; None if it cannot be answered here."""
    arguments = call.args or {}
    if call.name == INPUT:
        hint = str(arguments.get("message") or "")
        return Approval(call.id or "", call.id or "", INPUT, arguments, hint, agent)
    if call.name != CONFIRMATION:
        return None
    original = cast("JsonObject", arguments.get("originalFunctionCall") or {})
    confirmation = cast("JsonObject", arguments.get("toolConfirmation") or {})
    hint = str(confirmation.get("hint") or "")
    return Approval(
        id=call.id or "",
        call_id=str(original.get("id") or ""),
        name=str(original.get("name") or ""),
        arguments=cast("JsonObject", original.get("args") or {}),
        hint="" if hint.startswith(_STOCK_HINT) else hint,
        agent=agent,
    )


def _asked_by(call: types.FunctionCall, agent: str) -> Approval | None:
    """What a call asks for: an approval, or a credential; None if it cannot be answered here."""
    if call.name != CREDENTIAL:
        return approval_of(call, agent)
    if asked_config(call) is None:
        return None
    return Approval(call.id or "", asked_call_id(call), CREDENTIAL, {}, agent=agent)


def closed_waits(event: Event) -> set[str]:
    """The calls that no longer wait for a person after an event.

    A long-running tool's return value is pending and closes nothing; an error does.
    """
    asks = event.actions.requested_tool_confirmations
    closes = event.author == "user" or bool(event.error_code)
    return {
        response.id or ""
        for response in event.get_function_responses()
        if closes or ((response.response or {}).get("error") and response.id not in asks)
    }


def questions_in(events: Iterable[Event]) -> dict[str, Question]:
    """Every question in a session by its id, in order."""
    questions: dict[str, Question] = {}
    for event in events:
        for call in event.get_function_calls():
            approval = _asked_by(call, event.author)
            if approval is not None:
                questions[approval.id] = Question(approval, call.name or "", event.invocation_id)
        for response in event.get_function_responses():
            question = questions.get(response.id or "")
            if question is not None:
                questions[question.approval.id] = Question(
                    question.approval, question.question, question.turn, False
                )
    return questions


def answers_by_question(
    answers: Sequence[Answer], questions: Mapping[str, Question]
) -> dict[str, Answer]:
    """The answers by question id; each must match an open question of the same turn."""
    answer_by_question: dict[str, Answer] = {}
    for answer in answers:
        question = _question(answer.call_id, questions)
        if not question.is_open or question.approval.id in answer_by_question:
            raise TurnConflictError(
                f"{question.approval.name} was already answered: a question takes one answer."
            )
        answer_by_question[question.approval.id] = answer
    turns = {questions[id_].turn for id_ in answer_by_question}
    if len(turns) != 1:
        raise TurnConflictError("Answer at least one approval, and those of one turn at a time.")
    return answer_by_question


def _question(named_id: str, questions: Mapping[str, Question]) -> Question:
    """The question with this id, or the newest about this call, preferably an open one."""
    if named_id in questions:
        return questions[named_id]
    of_call = [question for question in questions.values() if question.approval.call_id == named_id]
    still_open = [question for question in of_call if question.is_open]
    if len(still_open) > 1:
        raise TurnConflictError(
            f"Several approvals have the call {named_id!r}: name one by its id."
        )
    if not of_call:
        raise ApprovalNotFoundError(f"No tool call of this session waits for {named_id!r}.")
    return (still_open or of_call)[-1]


def content_of(answers: Mapping[str, Answer], questions: Mapping[str, Question]) -> types.Content:
    """The answers as the message that ADK expects."""
    parts = [
        types.Part(
            function_response=types.FunctionResponse(
                id=question,
                name=questions[question].question,
                response=_response(answer, questions[question]),
            )
        )
        for question, answer in answers.items()
    ]
    return types.Content(role="user", parts=parts)


def _response(answer: Answer, question: Question) -> dict[str, Any]:
    payload = storable_json(answer.payload)
    if question.question == CONFIRMATION:
        extra = {} if payload is None else {"payload": payload}
        return {"confirmed": answer.approved, **extra}
    return cast("JsonObject", payload) if isinstance(payload, dict) else {"result": payload}


def answer_content(answers: Sequence[Answer], events: Sequence[Event]) -> types.Content:
    """Answers to questions or to long-running calls, as the message that ADK expects.

    Raises ApprovalNotFoundError or TurnConflictError for answers that ADK could not use.
    """
    calls = _long_running_calls(events)
    to_calls = [answer for answer in answers if answer.call_id in calls]
    if to_calls and len(to_calls) == len(answers):
        parts = [_result(answer, calls[answer.call_id]) for answer in answers]
        return types.Content(role="user", parts=parts)
    if to_calls:
        raise TurnConflictError("Answer approvals and long-running calls in turns of their own.")
    questions = questions_in(events)
    return content_of(answers_by_question(answers, questions), questions)


def _long_running_calls(events: Iterable[Event]) -> dict[str, str]:
    """The names of long-running calls by their ids."""
    return {
        call.id or "": call.name or ""
        for event in events
        for call in event.get_function_calls()
        if call.id in (event.long_running_tool_ids or ()) and call.name not in QUESTIONS
    }


def check_result(call_id: str, events: Sequence[Event]) -> None:
    """Raise unless a long-running call waits for its result under this id.

    TurnConflictError for a call that a person must approve first: a result is no approval.
    """
    for question in questions_in(events).values():
        approval = question.approval
        if question.is_open and call_id in (approval.id, approval.call_id):
            raise TurnConflictError(
                f"The call {approval.name} waits for an approval, and not for a result."
            )
    if call_id not in _long_running_calls(events):
        raise CallNotFoundError


def question_id(named_id: str, waits_for: Collection[str], events: Sequence[Event]) -> str:
    """The id of the question that an answer refers to, by question id or by call id."""
    if named_id in waits_for:
        return named_id
    for question in questions_in(events).values():
        approval = question.approval
        if approval.id in waits_for and approval.call_id == named_id:
            return approval.id
    raise ApprovalNotFoundError(f"The turn does not wait for {named_id!r}.")


def _result(answer: Answer, name: str) -> types.Part:
    payload: Any = answer.payload if answer.payload is not None else {"approved": answer.approved}
    response = cast("JsonObject", payload) if isinstance(payload, dict) else {"result": payload}
    return types.Part(
        function_response=types.FunctionResponse(id=answer.call_id, name=name, response=response)
    )
