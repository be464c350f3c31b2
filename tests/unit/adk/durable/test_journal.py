"""What stored events say of agent runs: the fold that recovery acts on."""

from typing import Any

import pytest
from google.adk.agents import (
    BaseAgent,
    LlmAgent,
    LoopAgent,  # pyright: ignore[reportDeprecated]  # people have them
    ParallelAgent,  # pyright: ignore[reportDeprecated]
    SequentialAgent,  # pyright: ignore[reportDeprecated]
)
from google.adk.events.event import Event

from lango.adk.durable.journal import (
    TEMP,
    AgentRun,
    Journal,
    SequencePosition,
    Step,
    agent_positions,
    mark,
    open_transfer,
    open_waits,
    root_container,
    unfinished_agents,
)
from lango.adk.models.adapter import ModelAdapter
from tests.unit.adk.durable.test_repairs import (
    TURN,
    call,
    ended,
    event,
    gave,
    question_for,
    state,
    text,
)

pytestmark = pytest.mark.filterwarnings("ignore:.*is deprecated in favor of Workflow")


def agent(name: str, **options: Any) -> LlmAgent:
    return LlmAgent(name=name, model=ModelAdapter("scripted:demo"), **options)


def sequence(name: str, *agents: BaseAgent) -> BaseAgent:
    return SequentialAgent(name=name, sub_agents=list(agents))  # pyright: ignore[reportDeprecated]


def loop(name: str, *agents: BaseAgent) -> BaseAgent:
    return LoopAgent(name=name, sub_agents=list(agents))  # pyright: ignore[reportDeprecated]


def parallel(name: str, *agents: BaseAgent) -> BaseAgent:
    return ParallelAgent(name=name, sub_agents=list(agents))  # pyright: ignore[reportDeprecated]


def asked(said: str = "go") -> Event:
    return text("user", said)


def at(author: str, name: str, rounds: int = 0) -> Event:
    return state(author, current_sub_agent=name, times_looped=rounds)


def marked(author: str, step: Step, *said: str, **temp: Any) -> Event:
    made = text(author, said[0]) if said else event(author)
    mark(made, step)
    if temp:
        made.custom_metadata = {**(made.custom_metadata or {}), TEMP: temp}
    return made


def run(root: BaseAgent, name: str, *events: Event, reopened: Any = ()) -> AgentRun:
    return Journal(events, TURN, agent_positions(root), reopened).run(name)


def test_a_run_without_events_has_done_nothing() -> None:
    alone = run(agent("root"), "root", asked())
    steps = (alone.has_begun, alone.body_done, alone.after_done, alone.is_paused)
    assert steps == (False, False, False, False)


@pytest.mark.parametrize(
    ("events", "body", "after"),
    [
        ([marked("root", "before")], False, False),
        ([call("root", "t"), gave("root", "t")], False, False),
        ([text("root")], True, False),
        ([text("root"), ended("root")], True, False),
        ([text("root"), ended("root"), marked("root", "after")], True, True),
        ([text("root"), ended("root"), marked("root", "after", "PS")], True, True),
        ([text("root"), ended("root"), text("root", "PS")], True, True),  # before marks existed
        ([call("root", "t"), gave("root", "t", actions={"skip_summarization": True})], True, False),
        ([gave("root", "exit", actions={"escalate": True})], True, False),
        ([text("root", interrupted=True)], False, False),
    ],
)
def test_the_steps_of_a_run(events: list[Event], body: bool, after: bool) -> None:
    found = run(agent("root"), "root", asked(), *events)
    assert found.has_begun
    assert (found.body_done, found.after_done) == (body, after)


def test_a_hidden_end_is_still_an_end() -> None:
    assert run(agent("root"), "root", asked(), marked("root", "end")).body_done


def test_an_answer_in_the_agent_s_place() -> None:
    found = run(agent("root"), "root", asked(), marked("root", "before", "no"))
    assert found.is_answered
    assert not run(agent("root"), "root", asked(), marked("root", "before")).is_answered


def test_another_invocation_is_not_read() -> None:
    other = text("root").model_copy(update={"invocation_id": "another"})
    assert not run(agent("root"), "root", asked(), other).has_begun


def test_steps_are_those_of_this_turn() -> None:
    root = sequence("root", agent("a"))
    first = (asked(), at("root", "a"), marked("a", "before"), question_for("pay"))
    again = run(root, "a", *first, marked("a", "after"), decided())
    assert (again.has_begun, again.after_done) == (False, False)
    assert run(root, "root", *first, decided()).cursor.current == "a"


def test_a_run_begins_where_its_container_came_to_it() -> None:
    root = loop("root", agent("a"))
    rounds = [asked(), at("root", "a"), text("a"), ended("a"), at("root", "a", 1)]
    assert not run(root, "a", *rounds).has_begun
    assert run(root, "a", *rounds[:-1]).body_done
    assert run(root, "a", *rounds).key == rounds[-1].id
    assert not run(root, "a", asked()).has_begun, "it was never come to"


def test_a_run_below_begins_anew_with_the_container_around_it() -> None:
    root = loop("root", parallel("inner", agent("a"), agent("b")))
    first = [asked(), at("root", "inner"), state("inner"), text("a"), ended("a"), ended("inner")]
    assert run(root, "a", *first).body_done
    second = [*first, at("root", "inner", 1)]
    assert not run(root, "a", *second).body_done
    assert not run(root, "inner", *second).has_state
    assert run(root, "inner", *first).has_state


def test_a_run_begins_with_the_transfer_to_it() -> None:
    root = agent("root", sub_agents=[agent("sub")])
    there = gave("root", "transfer", actions={"transfer_to_agent": "sub"})
    back = gave("sub", "transfer", actions={"transfer_to_agent": "root"})
    events = [asked(), marked("root", "before"), there, ended("root")]
    assert not run(root, "sub", *events).has_begun
    assert not run(root, "root", *events, marked("sub", "before"), back, ended("sub")).body_done


def test_the_cursor_of_a_sequence() -> None:
    root = sequence("root", agent("a"), agent("b"))
    assert run(root, "root", asked()).cursor == SequencePosition()
    found = run(root, "root", asked(), state("root", current_sub_agent="a"), at("root", "b"))
    assert found.cursor == SequencePosition("b", 0, frozenset({"a"}))


def test_the_cursor_of_a_loop_forgets_earlier_rounds() -> None:
    events = [asked(), at("root", "a"), at("root", "b"), at("root", "a", 1)]
    found = run(loop("root", agent("a"), agent("b")), "root", *events)
    assert found.cursor == SequencePosition("a", 1, frozenset())


@pytest.mark.parametrize(
    ("names", "order"),
    [
        ("abc", "bc"),
        ("ac", "c"),  # the current one is gone
        ("acb", "bc"),  # the current one stands later now: it goes on, and the other still runs
        ("cab", "bc"),
        ("ca", "c"),
        ("abxc", "bxc"),
        ("bc", "bc"),  # the finished one is gone
        ("a", ""),
    ],
)
def test_what_has_run_never_runs_again_and_the_rest_does(names: str, order: str) -> None:
    cursor = SequencePosition("b", 0, frozenset({"a"}))
    assert cursor.order(list(names)) == list(order)


def test_only_a_person_ends_the_wait_for_a_pending_value() -> None:
    asks = call("a", "ask", long_running_tool_ids={"call-ask"})
    pending = gave("a", "ask")
    assert open_waits([asks, pending]) == {"call-ask"}
    assert open_waits([asks, pending, gave("user", "ask")]) == set()
    closed = gave("a", "ask", id="x.closed.1")
    assert open_waits([asks, closed]) == set()
    failed = gave("a", "ask")
    failed.get_function_responses()[0].response = {"error": "no"}
    assert open_waits([asks, failed]) == set()


def test_a_call_without_its_mark_still_waits() -> None:
    asks = call("a", "ask")
    assert open_waits([asks], {"call-ask"}) == {"call-ask"}
    assert open_waits([text("a")], {"call-ask"}) == set()


def decided() -> Event:
    """A person's answer to the question of `question_for`."""
    made = gave("user", "adk_request_confirmation")
    made.get_function_responses()[0].id = "question"
    return made


def test_a_run_that_waits_is_not_driven() -> None:
    events = [asked(), call("root", "pay"), question_for("pay"), gave("root", "pay")]
    waits = run(agent("root"), "root", *events)
    assert waits.waits == {"question"}
    assert waits.is_paused
    assert not run(agent("root"), "root", *events, decided()).is_paused


def test_a_confirmed_call_runs_though_another_still_waits() -> None:
    root = agent("root")
    other = call("root", "ask", long_running_tool_ids={"call-ask"})
    events = [asked(), call("root", "pay"), question_for("pay"), gave("root", "pay"), other]
    assert run(root, "root", *events).is_paused
    assert not run(root, "root", *events, decided()).is_paused
    assert run(root, "root", *events, decided(), gave("root", "pay")).is_paused


def test_a_branch_that_nothing_was_said_to_stays_paused() -> None:
    root = parallel("root", agent("a"), agent("b"))
    waits = [
        asked(),
        state("root"),
        call("a", "ask", long_running_tool_ids={"call-ask"}),
        gave("a", "ask"),
        text("a", "I have asked."),
        call("b", "wait", long_running_tool_ids={"call-wait"}),
    ]
    assert run(root, "a", *waits, gave("user", "wait")).is_paused
    assert not run(root, "b", *waits, gave("user", "wait")).is_paused
    assert not run(root, "a", *waits, gave("user", "ask")).is_paused


def test_what_an_agent_still_has_to_do() -> None:
    events = [asked(), at("root", "a"), text("a"), ended("a"), at("root", "b"), call("b", "t")]
    assert unfinished_agents(events) == {"root", "b"}
    assert unfinished_agents([*events, gave("b", "t"), text("b")]) == {"root"}
    assert unfinished_agents([text("a"), ended("a"), marked("a", "after", "PS")]) == set()
    assert unfinished_agents([marked("a", "before", "no")]) == set()
    assert unfinished_agents([marked("a", "before")]) == {"a"}


def test_a_transfer_is_open_until_its_target_has_written() -> None:
    there = gave("root", "transfer", actions={"transfer_to_agent": "sub"})
    assert open_transfer([asked(), there, ended("root")]) == "sub"
    assert open_transfer([asked(), there, ended("root"), marked("sub", "before")]) is None
    assert open_transfer([asked()]) is None


def test_an_escalation_below_counts_for_the_agent_around() -> None:
    root = loop("root", sequence("inner", agent("a")))
    events = [asked(), at("root", "inner"), at("inner", "a")]
    assert not run(root, "inner", *events).escalates
    assert run(root, "inner", *events, gave("a", "exit", actions={"escalate": True})).escalates


def test_temporary_state_is_in_the_mark() -> None:
    found = run(agent("root"), "root", asked(), marked("root", "before", **{"temp:a": 1}))
    assert found.temp_state("before") == {"temp:a": 1}
    assert found.temp_state("after") == {}


def test_which_root_is_a_container() -> None:
    assert root_container(agent_positions(sequence("root", agent("a")))) == "root"
    nested = agent("root", sub_agents=[sequence("inner", agent("a"))])
    assert root_container(agent_positions(nested)) is None
