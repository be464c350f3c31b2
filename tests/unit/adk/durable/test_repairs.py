"""What a dead worker did not get to write, found in the events it did write."""

from typing import Any

from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions
from google.adk.tools.tool_confirmation import ToolConfirmation
from google.genai import types

from lango.adk.durable.calls.long_running import hide_marks
from lango.adk.durable.calls.open_calls import calls_last
from lango.adk.durable.journal import mark
from lango.adk.durable.output_key import complete_output
from lango.adk.durable.repairs import (
    AWAITS_CONFIRMATION,
    missing_confirmations,
    missing_ends,
    missing_responses,
)
from lango.store.turns.ledger import Finished

TURN = "turn"


def event(author: str, *parts: types.Part, **options: Any) -> Event:
    content = types.Content(role="model", parts=list(parts)) if parts else None
    actions = EventActions(**options.pop("actions", {}))
    return Event(invocation_id=TURN, author=author, content=content, actions=actions, **options)


def text(author: str, said: str = "done", **options: Any) -> Event:
    return event(author, types.Part(text=said), **options)


def call(author: str, name: str, **options: Any) -> Event:
    made = types.FunctionCall(id=f"call-{name}", name=name, args={"k": 1})
    return event(author, types.Part(function_call=made), **options)


def gave(author: str, name: str, **options: Any) -> Event:
    given = types.FunctionResponse(id=f"call-{name}", name=name, response={"ok": 1})
    return event(author, types.Part(function_response=given), **options)


def test_an_end_is_missing_after_a_final_text_and_after_a_transfer() -> None:
    said = text("root")
    (end,) = missing_ends([said], {})
    assert (end.id, end.author, end.actions.end_of_agent) == (f"{said.id}.end", "root", True)
    passed = gave("root", "transfer_to_agent", actions={"transfer_to_agent": "sub"})
    (end,) = missing_ends([call("root", "transfer_to_agent"), passed], {})
    assert end.id == f"{passed.id}.end"
    ended = event("root", actions={"end_of_agent": True})
    assert list(missing_ends([said, ended], {})) == []
    assert list(missing_ends([call("root", "t")], {})) == []


def test_an_agent_that_waited_for_this_turn_has_not_ended() -> None:
    assert list(missing_ends([text("root"), text("user", "the answer")], {})) == []


def test_no_end_is_written_where_a_person_is_asked() -> None:
    asks = {
        "skip_summarization": True,
        "requested_tool_confirmations": {"call-pay": ToolConfirmation(hint="?")},
    }
    events = [call("root", "pay"), gave("root", "pay", actions=asks)]
    assert list(missing_ends(events, {})) == []


def test_a_question_that_a_response_asks_for_is_put_once() -> None:
    asks = {"requested_tool_confirmations": {"call-pay": ToolConfirmation(hint="?")}}
    asked, response = call("root", "pay"), gave("root", "pay", actions=asks)
    (question,) = missing_confirmations([asked, response], {})
    assert question.id == f"{response.id}.confirm"
    assert question.long_running_tool_ids == {question.get_function_calls()[0].id}
    assert list(missing_confirmations([asked, response, question], {})) == []


def test_what_a_callback_says_is_no_end() -> None:
    said, spoken = text("root"), text("root", "PS")
    mark(spoken, "after")
    assert (
        list(missing_ends([said, event("root", actions={"end_of_agent": True}), spoken], {})) == []
    )


def question_for(name: str) -> Event:
    original = {"id": f"call-{name}", "name": name}
    arguments = {"originalFunctionCall": original, "toolConfirmation": {"hint": "?"}}
    asks = types.FunctionCall(id="question", name="adk_request_confirmation", args=arguments)
    return event("root", types.Part(function_call=asks), long_running_tool_ids={"question"})


def test_a_call_that_only_awaits_its_confirmation_gets_adk_s_response() -> None:
    asked, question = call("root", "pay"), question_for("pay")
    (response,) = missing_responses([asked, question], {})
    (given,) = response.get_function_responses()
    assert (given.id, given.response) == ("call-pay", {"error": AWAITS_CONFIRMATION})
    assert response.actions.skip_summarization
    assert set(response.actions.requested_tool_confirmations) == {"call-pay"}
    assert response.id == f"{question.id}.asked"
    assert list(missing_responses([asked, question, response], {})) == []


def test_a_call_that_ran_and_asks_gets_what_it_gave() -> None:
    events = [call("root", "pay"), question_for("pay")]
    (response,) = missing_responses(
        events, {"call-pay": Finished("later", {"state_delta": {"a": 1}})}
    )
    (given,) = response.get_function_responses()
    assert given.response == {"result": "later"}
    assert response.actions.state_delta == {"a": 1}


def state(author: str, **values: Any) -> Event:
    return event(author, actions={"agent_state": values})


def ended(author: str) -> Event:
    return event(author, actions={"end_of_agent": True})


def test_marks_are_hidden_of_calls_that_never_ran() -> None:
    lost = call("root", "ask", long_running_tool_ids={"call-ask"})
    assert hide_marks([lost], TURN, set()) == {"call-ask"}
    assert lost.long_running_tool_ids == set()
    runs = call("root", "ask", long_running_tool_ids={"call-ask"})
    assert hide_marks([runs], TURN, {"call-ask"}) == set()
    assert hide_marks([runs, gave("user", "ask")], TURN, set()) == set()
    assert hide_marks([runs], "another", set()) == set()
    both = call("root", "ask", long_running_tool_ids={"call-ask", "call-other"})
    assert hide_marks([both], TURN, {"call-other"}) == {"call-ask", "call-other"}, "both run again"
    question = call("root", "adk_request_confirmation")
    question.long_running_tool_ids = {"call-adk_request_confirmation"}
    assert hide_marks([question], TURN, set()) == set()


def test_an_output_is_whole_again() -> None:
    before = [text("user", "hi"), text("root", "One "), gave("root", "t"), text("other", "no")]
    last = text("root", "two.", actions={"state_delta": {"out": "two."}})
    complete_output({"root": "out"}, before, last)
    assert last.actions.state_delta == {"out": "One two."}


def test_an_output_begins_with_the_run_of_its_agent() -> None:
    before = [text("root", "earlier "), ended("root"), text("root", "One ")]
    last = text("root", "two.", actions={"state_delta": {"out": "two."}})
    complete_output({"root": "out"}, before, last)
    assert last.actions.state_delta == {"out": "One two."}


def test_what_says_nothing_goes_before_an_open_call() -> None:
    open_call, note = call("root", "t"), state("wf", nodes={})
    events = [open_call, note]
    calls_last(events, TURN)
    assert events == [note, open_call]
    waits = call("root", "ask", long_running_tool_ids={"call-ask"})
    stays = [waits, note]
    calls_last(stays, TURN)
    assert stays == [waits, note]
    answered = [open_call, gave("root", "t"), note]
    calls_last(answered, TURN)
    assert answered[-1] is note


def test_what_another_branch_says_stays_where_it_is() -> None:
    elsewhere = [call("a", "t", branch="par.a"), text("b", branch="par.b")]
    elsewhere.append(event("b", actions={"end_of_agent": True}, branch="par.b"))
    events = list(elsewhere)
    calls_last(events, TURN)
    assert events == elsewhere
