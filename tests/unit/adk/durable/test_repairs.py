"""What a dead worker did not get to write, found in the events it did write."""

from typing import Any

import pytest
from google.adk.agents import (
    LlmAgent,
    LoopAgent,  # pyright: ignore[reportDeprecated]  # people have them
    SequentialAgent,  # pyright: ignore[reportDeprecated]
)
from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions
from google.adk.tools.tool_confirmation import ToolConfirmation
from google.genai import types

from lango.adk.durable.long_running import hide_marks
from lango.adk.durable.open_calls import calls_last
from lango.adk.durable.output_key import complete_output
from lango.adk.durable.repairs import is_over, missing_confirmations, missing_ends, next_states
from lango.adk.model import ModelAdapter

pytestmark = pytest.mark.filterwarnings("ignore:.*is deprecated in favor of Workflow")

TURN = "turn"


def agent(name: str, **options: Any) -> LlmAgent:
    return LlmAgent(name=name, model=ModelAdapter("scripted:demo"), **options)


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


def test_a_turn_is_over_after_the_last_word_of_an_agent_that_talks() -> None:
    inner = SequentialAgent(name="steps", sub_agents=[agent("a")])  # pyright: ignore[reportDeprecated]
    helper = agent("helper", mode="single_turn")
    root = agent("root", sub_agents=[agent("sub"), inner, helper])
    assert is_over([text("root")], root)
    assert is_over([call("root", "t"), gave("root", "t"), text("sub")], root)
    assert not is_over([], root)
    assert not is_over([call("root", "t"), gave("root", "t")], root)
    assert not is_over([text("a")], root), "its sequence may have more agents"
    assert not is_over([text("helper")], root), "it was called, and its caller goes on"
    assert not is_over([text("root", interrupted=True)], root)
    assert not is_over([text("a")], inner), "a sequence finds that out itself"


def test_an_end_is_missing_after_a_final_text_and_after_a_transfer() -> None:
    root = agent("root", sub_agents=[agent("sub")])
    said = text("root")
    (end,) = missing_ends([said], root)
    assert (end.id, end.author, end.actions.end_of_agent) == (f"{said.id}.end", "root", True)
    passed = gave("root", "transfer_to_agent", actions={"transfer_to_agent": "sub"})
    (end,) = missing_ends([call("root", "transfer_to_agent"), passed], root)
    assert end.id == f"{passed.id}.end"
    ended = event("root", actions={"end_of_agent": True})
    assert list(missing_ends([said, ended], root)) == []
    assert list(missing_ends([call("root", "t")], root)) == []


def test_no_end_is_written_where_a_person_is_asked() -> None:
    asks = {
        "skip_summarization": True,
        "requested_tool_confirmations": {"call-pay": ToolConfirmation(hint="?")},
    }
    events = [call("root", "pay"), gave("root", "pay", actions=asks)]
    assert list(missing_ends(events, agent("root"))) == []


def test_a_question_that_a_response_asks_for_is_put_once() -> None:
    asks = {"requested_tool_confirmations": {"call-pay": ToolConfirmation(hint="?")}}
    asked, response = call("root", "pay"), gave("root", "pay", actions=asks)
    (question,) = missing_confirmations([asked, response], agent("root"))
    assert question.id == f"{response.id}.confirm"
    assert question.long_running_tool_ids == {question.get_function_calls()[0].id}
    assert list(missing_confirmations([asked, response, question], agent("root"))) == []


def state(author: str, **values: Any) -> Event:
    return event(author, actions={"agent_state": values})


def ended(author: str) -> Event:
    return event(author, actions={"end_of_agent": True})


def test_a_sequence_goes_to_its_next_agent_or_ends() -> None:
    root = SequentialAgent(name="steps", sub_agents=[agent("a"), agent("b")])  # pyright: ignore[reportDeprecated]
    at_first = state("steps", current_sub_agent="a")
    assert list(next_states([at_first], root)) == []
    (following,) = next_states([at_first, ended("a")], root)
    assert following.actions.agent_state == {"current_sub_agent": "b"}
    assert following.id == f"{at_first.id}.next"
    (over,) = next_states([state("steps", current_sub_agent="b"), ended("b")], root)
    assert over.actions.end_of_agent


@pytest.mark.parametrize(
    ("current", "escalates", "rounds", "wanted"),
    [
        ("a", False, 0, {"current_sub_agent": "b", "times_looped": 0}),
        ("b", False, 0, {"current_sub_agent": "a", "times_looped": 1}),
        ("b", False, 2, None),
        ("a", True, 0, None),
    ],
)
def test_a_loop_goes_round_until_it_is_left(
    current: str, escalates: bool, rounds: int, wanted: Any
) -> None:
    agents = [agent("a"), agent("b")]
    root = LoopAgent(name="loop", max_iterations=3, sub_agents=list(agents))  # pyright: ignore[reportDeprecated]
    at = state("loop", current_sub_agent=current, times_looped=rounds)
    way_out = [gave(current, "exit_loop", actions={"escalate": True})] if escalates else []
    (following,) = next_states([at, *way_out, ended(current)], root)
    assert following.actions.agent_state == wanted
    assert bool(following.actions.end_of_agent) == (wanted is None)


def test_marks_are_hidden_of_calls_that_never_ran() -> None:
    lost = call("root", "ask", long_running_tool_ids={"call-ask"})
    assert hide_marks([lost], TURN, set()) == {"call-ask"}
    assert lost.long_running_tool_ids == set()
    runs = call("root", "ask", long_running_tool_ids={"call-ask"})
    assert hide_marks([runs], TURN, {"call-ask"}) == set()
    assert hide_marks([runs, gave("user", "ask")], TURN, set()) == set()
    assert hide_marks([runs], "another", set()) == set()
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
    answered = [open_call, gave("root", "t"), note]
    calls_last(answered, TURN)
    assert answered[-1] is note


def test_what_another_branch_says_stays_where_it_is() -> None:
    elsewhere = [call("a", "t", branch="par.a"), text("b", branch="par.b")]
    elsewhere.append(event("b", actions={"end_of_agent": True}, branch="par.b"))
    events = list(elsewhere)
    calls_last(events, TURN)
    assert events == elsewhere
