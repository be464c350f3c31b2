"""Finds the events that a dead worker did not write; they are written before ADK resumes.

Each function reads the events of one invocation and yields the missing ones. Their ids derive from
the events they follow, so writing them is idempotent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, cast

from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions
from google.adk.tools.tool_confirmation import ToolConfirmation
from google.genai import types

from lango.adk.compat.questions import confirmation_request, credential_request
from lango.adk.credentials.kinds import CREDENTIAL
from lango.adk.durable.journal import finishes, has_parts, is_end, is_message, step_of
from lango.adk.tools.approvals import CONFIRMATION
from lango.core.values import JsonObject
from lango.store.turns.ledger import Finished, bounded_key

_CALL_ID: Final = ("functionCallId", "function_call_id")
AWAITS_CONFIRMATION: Final = "This tool call requires confirmation, please approve or reject."
"""ADK's response to a call that a person has yet to confirm."""
REJECTED: Final = "This tool call is rejected."
"""ADK's response to a call that a person has refused."""

Results = Mapping[str, Finished]
"""The ledger's results of calls, by call id."""
Repair = Callable[[Sequence[Event], Results], Iterator[Event]]


def missing_confirmations(events: Sequence[Event], results: Results) -> Iterator[Event]:
    """Confirmation questions that a tool's response requests and that are not stored."""
    del results
    stored_questions = {
        _arguments(c).get("originalFunctionCall", {}).get("id")
        for c in _calls(events, CONFIRMATION)
    }
    for event in events:
        requested = set(event.actions.requested_tool_confirmations)
        calls = next((candidate for candidate in events if requested & _call_ids(candidate)), None)
        if not requested or requested & stored_questions or calls is None:
            continue
        question = confirmation_request(calls, event)
        if question is not None:
            yield _placed_after(question, event, "confirm")


def missing_credentials(events: Sequence[Event], results: Results) -> Iterator[Event]:
    """Credential requests that a tool's response asks for and that are not stored."""
    del results
    stored_requests = {
        _arguments(c).get(name) for c in _calls(events, CREDENTIAL) for name in _CALL_ID
    }
    for event in events:
        requested = set(event.actions.requested_auth_configs)
        request = credential_request(event) if requested - stored_requests else None
        if request is not None:
            yield _placed_after(request, event, "credential")


def missing_ends(events: Sequence[Event], results: Results) -> Iterator[Event]:
    """End marks of agents: after a final text, a transfer or a way out of a loop."""
    del results
    last: dict[tuple[str, str | None], Event] = {}
    for event in events:
        author_and_branch = (event.author, event.branch)
        if is_message(event):  # an agent that waited for it has not ended
            last.clear()
        elif is_end(event):
            last.pop(author_and_branch, None)
        elif has_parts(event) and event.author != "user" and step_of(event) is None:
            last[author_and_branch] = event
    for event in last.values():
        if finishes(event):
            yield _mark(event, EventActions(end_of_agent=True), "end")


def missing_responses(events: Sequence[Event], results: Results) -> Iterator[Event]:
    """Responses of calls that ask a person: ADK stores the question before them.

    The ledger has the tool's result; a call that only awaits its confirmation never ran.
    """
    answered = {response.id for event in events for response in event.get_function_responses()}
    calls = {call.id: call for event in events for call in event.get_function_calls()}
    for event in events:
        questions = {
            call: question
            for question in event.get_function_calls()
            for call in _calls_of_question(question)
        }
        lacking = [call for call in questions if call in calls and call not in answered]
        if lacking:
            yield _stand_in(event, [calls[call] for call in lacking], questions, results)


def _calls_of_question(question: types.FunctionCall) -> Iterator[str]:
    """The id of the call that a question is about."""
    arguments = _arguments(question)
    if question.name == CONFIRMATION:
        yield str(arguments.get("originalFunctionCall", {}).get("id"))
    elif question.name == CREDENTIAL:
        yield from (str(arguments[name]) for name in _CALL_ID if name in arguments)


def _stand_in(
    event: Event,
    calls: Sequence[types.FunctionCall],
    questions: Mapping[str, types.FunctionCall],
    results: Results,
) -> Event:
    actions, parts = EventActions(), list[types.Part]()
    for call in calls:
        call_result, question = results.get(bounded_key(call.id or "")), questions[call.id or ""]
        if call_result is not None:
            actions = _merged(actions, EventActions.model_validate(call_result.actions))
        elif question.name == CONFIRMATION:
            confirmation = ToolConfirmation.model_validate(_arguments(question)["toolConfirmation"])
            actions.requested_tool_confirmations[call.id or ""] = confirmation
            actions.skip_summarization = True
        result: Any = call_result.result if call_result else {"error": AWAITS_CONFIRMATION}
        answer = cast(JsonObject, result) if isinstance(result, dict) else {"result": result}
        response = types.FunctionResponse(id=call.id, name=call.name, response=answer)
        parts.append(types.Part(function_response=response))
    stand_in = _mark(event, actions, "asked")
    stand_in.content = types.Content(role="user", parts=parts)
    return stand_in


def _merged(actions: EventActions, added: EventActions) -> EventActions:
    """The actions of several calls, as ADK merges them into one event."""
    changes = {name: getattr(added, name) for name in added.model_fields_set}
    for name, value in changes.items():
        current: Any = getattr(actions, name)
        changes[name] = {**current, **value} if isinstance(value, dict) and current else value
    return actions.model_copy(update=changes)


REPAIRS: Final[Sequence[Repair]] = (
    missing_confirmations,
    missing_credentials,
    missing_responses,
)
"""In this order: each repair sees the events of those before it."""
REPAIRS_OF_AGENTS: Final[Sequence[Repair]] = (*REPAIRS, missing_ends)
"""The same for an agent tree; a Workflow records the end of its nodes itself."""


def _call_ids(event: Event) -> set[str | None]:
    return {call.id for call in event.get_function_calls()}


def _arguments(call: types.FunctionCall) -> JsonObject:
    return call.args or {}


def _calls(events: Sequence[Event], name: str) -> Iterator[types.FunctionCall]:
    for event in events:
        yield from (call for call in event.get_function_calls() if call.name == name)


def _placed_after(repair: Event, event: Event, name: str) -> Event:
    repair.id = f"{event.id}.{name}"
    repair.node_info = event.node_info.model_copy()
    repair.isolation_scope = event.isolation_scope
    return repair


def _mark(event: Event, actions: EventActions, name: str) -> Event:
    outputs = {"output_for": None, "message_as_output": None}
    return Event(
        id=f"{event.id}.{name}",
        invocation_id=event.invocation_id,
        author=event.author,
        branch=event.branch,
        node_info=event.node_info.model_copy(update=outputs),
        isolation_scope=event.isolation_scope,
        actions=actions,
    )
