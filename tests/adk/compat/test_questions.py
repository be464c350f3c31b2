"""Canary of lango/adk/compat/questions.py."""

from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions
from google.adk.tools.tool_confirmation import ToolConfirmation
from google.genai import types

from tests.support.canary import Canary

CANARY = Canary.of_adk("questions.py", "questions that a dead worker did not store")
MODULE = "flows.llm_flows.functions"


def test_adk_builds_questions_by_these_functions() -> None:
    confirm = CANARY.part(MODULE, "generate_request_confirmation_event")
    CANARY.takes(confirm, "invocation_context", "function_call_event", "function_response_event")
    authorize = CANARY.part(MODULE, "generate_auth_event")
    CANARY.takes(authorize, "invocation_context", "function_response_event")


def test_they_read_only_the_fields_that_lango_gives_them() -> None:
    from lango.adk.compat.questions import confirmation_request, credential_request

    call = types.FunctionCall(id="c", name="pay", args={})
    content = types.Content(role="model", parts=[types.Part(function_call=call)])
    calls = Event(author="bank", invocation_id="i", content=content)
    actions = EventActions(requested_tool_confirmations={"c": ToolConfirmation(hint="Pay?")})
    responses = Event(author="bank", invocation_id="i", branch="b", actions=actions)
    question = confirmation_request(calls, responses)
    built = question is not None and (question.author, question.invocation_id, question.branch)
    CANARY.check(
        built == ("bank", "i", "b"), "generate_request_confirmation_event", "the same result"
    )
    CANARY.check(credential_request(responses) is None, "generate_auth_event", "the same result")
