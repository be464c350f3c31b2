"""The same call over and over."""

from typing import Any

import pytest
from google.adk.models.base_llm import BaseLlm
from google.adk.tools.agent_tool import AgentTool
from google.adk.tools.function_tool import FunctionTool
from google.genai import types

from lango.adk.plugins.repeat_stop import RepeatStopPlugin
from lango.errors import RepeatedCallError
from tests.adk.plugins.plugin_talk import (
    OLD_WAYS,
    PluginConversation,
    agent,
    answers,
    called,
    calling,
    in_parallel,
    other,
    ours,
    said,
    unanswered,
)

pytestmark = OLD_WAYS
ran: list[int] = []


@pytest.fixture(autouse=True)
def _nothing_ran() -> None:
    ran.clear()


async def look(number: int = 0) -> dict[str, Any]:
    """Look at a number."""
    ran.append(number)
    return {"seen": number}


def both(*numbers: int) -> list[BaseLlm]:
    """A model of ours and another one that make these calls."""
    theirs = [called("look", f"c{n}", number=number) for n, number in enumerate(numbers)]
    our = [calling("look", f"c{n}", f'{{"number":{x}}}') for n, x in enumerate(numbers)]
    return [other(*theirs), ours(*our, "ok")]


@pytest.mark.parametrize("kind", [0, 1], ids=["other", "ours"])
async def test_a_call_is_refused_then_the_turn_ends(kind: int) -> None:
    talk = PluginConversation(agent(both(7, 7, 7, 7, 7, 7)[kind], look), [RepeatStopPlugin(3)])
    with pytest.raises(RepeatedCallError, match=r"look was called 5 times in a row") as caught:
        await talk.say("go")
    assert type(caught.value) is RepeatedCallError  # not ADK's RuntimeError around it
    assert caught.value.tool == "look"
    assert ran == [7, 7, 7]
    events_read = [answer["error"] for answer in answers(talk.events) if "error" in answer]
    assert len(events_read) == 2
    assert "called 3 times in a row with the same arguments" in events_read[0]
    session = await talk.session()
    assert unanswered(session.events) == set()
    assert session.events[-1].error_code == "RepeatedCallError"


async def test_a_model_that_listens_goes_on() -> None:
    model = other(*[called("look", f"c{n}", number=1) for n in range(3)], "enough")
    events = await PluginConversation(agent(model, look), [RepeatStopPlugin(2)]).say("go")
    assert ran == [1, 1]
    assert said(events) == "enough"


@pytest.mark.parametrize("kind", [0, 1], ids=["other", "ours"])
async def test_another_call_between_begins_anew(kind: int) -> None:
    numbers = (1, 1, 2, 1, 1, 2, 1)
    events = await PluginConversation(agent(both(*numbers)[kind], look), [RepeatStopPlugin(2)]).say(
        "go"
    )
    assert tuple(ran) == numbers
    assert said(events) == "ok"


async def test_every_turn_begins_anew_and_is_forgotten() -> None:
    plugin = RepeatStopPlugin(2)
    model = other(*[called("look", number=1), called("look", number=1), "ok"] * 3)
    talk = PluginConversation(agent(model, look), [plugin])
    for _ in range(3):
        assert said(await talk.say("go")) == "ok"
    assert len(plugin.turns) == 0


async def test_the_order_of_arguments_does_not_matter() -> None:
    async def add(left: int, right: int) -> dict[str, Any]:
        """Add."""
        ran.append(left + right)
        return {"sum": left + right}

    model = other(called("add", left=1, right=2), called("add", right=2, left=1), "ok")
    await PluginConversation(agent(model, add), [RepeatStopPlugin(1)]).say("go")
    assert ran == [3]


async def test_parallel_agents_do_not_count_together() -> None:
    agents = [
        agent(other(called("look", number=1), called("look", number=1), "ok"), look, name=name)
        for name in ("one", "two", "three")
    ]
    events = await PluginConversation(in_parallel(*agents), [RepeatStopPlugin(2)]).say("go")
    assert ran == [1] * 6
    assert said(events) == "okokok"


async def test_an_agent_that_a_tool_runs_ends_the_whole_turn() -> None:
    inner = agent(other(*[called("look", number=1) for _ in range(9)]), look, name="inner")
    outer = other(called("inner", request="look"), "never said")
    talk = PluginConversation(agent(outer, AgentTool(inner)), [RepeatStopPlugin(1)])
    with pytest.raises(RepeatedCallError):
        await talk.say("go")
    assert ran == [1]


async def test_a_call_that_waited_for_a_person_is_not_held_for_a_repetition() -> None:
    tool = FunctionTool(look, require_confirmation=True)
    talk = PluginConversation(
        agent(other(called("look", "c", number=1), "ok"), tool), [RepeatStopPlugin(1)]
    )
    await talk.say("go")
    assert ran == []
    [calls] = [
        call
        for event in talk.events
        for call in event.get_function_calls()
        if call.name == "adk_request_confirmation"
    ]
    yes = types.FunctionResponse(id=calls.id, name=calls.name, response={"confirmed": True})
    await talk.say(types.Part(function_response=yes))
    assert ran == [1]


def test_a_limit_below_one_is_refused() -> None:
    with pytest.raises(ValueError, match="once at least, not 0"):
        RepeatStopPlugin(0)
