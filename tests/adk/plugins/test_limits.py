"""What one turn may use."""

import logging
from typing import Any

import pytest
from google.adk.tools.agent_tool import AgentTool

from lango.adk.models.adapter import ModelAdapter
from lango.adk.plugins.limits import LimitsPlugin
from lango.adk.plugins.tool_feedback import ToolFeedbackPlugin
from lango.core.messages.streams import Usage
from lango.errors import ModelUnavailableError, TurnLimitError
from lango.providers.policy.retry import Fallback, Policy, PolicyProvider
from lango.testing import Fault, Reply, ScriptedProvider
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


async def look(number: int = 0) -> dict[str, Any]:
    """Look at a number."""
    return {"seen": number}


def looks(times: int) -> list[Any]:
    return [called("look", f"c{number}", number=number) for number in range(times)]


async def stopped(talk: PluginConversation) -> TurnLimitError:
    with pytest.raises(TurnLimitError) as caught:
        await talk.say("go")
    assert type(caught.value) is TurnLimitError
    session = await talk.session()
    assert session.events[-1].error_code == "TurnLimitError"
    assert unanswered(session.events) == set()
    return caught.value


async def test_model_calls() -> None:
    model = other(*looks(9))
    error = await stopped(PluginConversation(agent(model, look), [LimitsPlugin(model_calls=3)]))
    assert (error.limit, error.allowed, error.used) == ("model_calls", 3, 4)
    assert str(error) == "The turn reached its limit of model calls: 4 of 3."
    assert len(model.requests) == 3


async def test_a_turn_within_its_limits_is_not_stopped() -> None:
    plugin = LimitsPlugin(model_calls=3, tool_calls=2, tokens=10_000, cost=1.0)
    talk = PluginConversation(agent(other(*looks(2), "ok", *looks(2), "ok"), look), [plugin])
    for _ in range(2):
        assert said(await talk.say("go")) == "ok"
    assert len(plugin.turns) == 0


async def test_tool_calls_over_the_limit_are_answered_not_run() -> None:
    ran: list[int] = []

    async def note(number: int) -> dict[str, Any]:
        """Note a number."""
        ran.append(number)
        return {}

    calls = [called("note", f"n{number}", number=number) for number in range(4)]
    talk = PluginConversation(agent(other(calls), note), [LimitsPlugin(tool_calls=2)])
    error = await stopped(talk)
    assert (error.limit, error.allowed, error.used) == ("tool_calls", 2, 4)
    assert sorted(ran) == [0, 1]
    assert [bool(answer.get("error")) for answer in answers(talk.events)] == [False] * 2 + [
        True
    ] * 2


async def test_tokens_of_another_model() -> None:
    model = other(*looks(9))  # 115 tokens each
    error = await stopped(PluginConversation(agent(model, look), [LimitsPlugin(tokens=300)]))
    assert (error.limit, error.allowed, error.used) == ("tokens", 300, 345)
    assert len(model.requests) == 3


async def test_tokens_of_our_own_model_are_counted_once() -> None:
    usage = Usage(input=100, output=20, cached=50, reasoning=10)
    replies = [Reply(calls=calling("look", f"c{n}").calls, usage=usage) for n in range(9)]
    model = ours(*replies)
    error = await stopped(PluginConversation(agent(model, look), [LimitsPlugin(tokens=240)]))
    assert error.used == 240


def priced(name: str, usage: Usage, **faults: Any) -> ScriptedProvider:
    """A scripted provider that goes by the name of one whose prices are known."""

    class Priced(ScriptedProvider):
        @property
        def name(self) -> str:
            return name

    reply = Reply(calls=calling("look", "").calls, usage=usage, **faults)
    return Priced(rule=lambda _: reply)


MILLION = Usage(input=1_000_000)


async def test_cost() -> None:
    model = ModelAdapter(priced("openai", MILLION), "gpt-4o-mini")  # 0.15 US dollars a million
    error = await stopped(PluginConversation(agent(model, look), [LimitsPlugin(cost=0.40)]))
    assert (error.limit, error.allowed) == ("cost", 0.40)
    assert error.used == pytest.approx(0.45)
    assert str(error).endswith("limit of cost: 0.4500 of 0.4000 US dollars.")


async def test_the_cost_is_that_of_the_model_that_answered() -> None:
    failing = priced("openai", MILLION, fault=Fault(0, ModelUnavailableError("gone")))
    standing_in = priced("openai", MILLION)
    provider = PolicyProvider(
        failing,
        Policy(tries=1),
        fallbacks=[Fallback(standing_in, "gpt-4o")],  # 2.50 a million
    )
    error = await stopped(
        PluginConversation(
            agent(ModelAdapter(provider, "gpt-4o-mini"), look), [LimitsPlugin(cost=2.0)]
        )
    )
    assert error.used == pytest.approx(2.5)


async def test_a_model_without_a_price_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    talk = PluginConversation(agent(other(*looks(2), "ok"), look), [LimitsPlugin(cost=0.01)])
    with caplog.at_level(logging.WARNING, "lango"):
        assert said(await talk.say("go")) == "ok"
    warnings = [record.getMessage() for record in caplog.records if "price" in record.getMessage()]
    assert warnings == ["othermodel:other-1 has no known price: its calls count as free."]


@pytest.mark.parametrize("feedback", [True, False], ids=["with feedback", "alone"])
async def test_an_agent_that_a_tool_runs_uses_what_its_turn_has(feedback: bool) -> None:
    inner_model = other(*looks(9))
    inner = agent(inner_model, look, name="inner")
    outer_model = other(called("inner", "i", request="look"), "never said")
    plugins = [LimitsPlugin(model_calls=4), *([ToolFeedbackPlugin()] if feedback else [])]
    talk = PluginConversation(agent(outer_model, AgentTool(inner)), plugins)
    with pytest.raises(TurnLimitError, match="5 of 4"):
        await talk.say("go")
    assert (len(outer_model.requests), len(inner_model.requests)) == (1, 3)
    unpaired = unanswered((await talk.session()).events)
    assert unpaired == (set() if feedback else {"i"})


async def test_sub_agents_and_parallel_ones_use_what_their_turn_has() -> None:
    models = [other(*looks(9)) for _ in range(3)]
    agents = [agent(model, look, name=f"agent_{n}") for n, model in enumerate(models)]
    talk = PluginConversation(in_parallel(*agents), [LimitsPlugin(model_calls=7)])
    with pytest.raises(TurnLimitError):
        await talk.say("go")
    assert sum(len(model.requests) for model in models) == 7


async def test_turns_of_one_task_are_counted_apart() -> None:
    """Also when the one before ran tools, failed, or was left in the middle."""
    plugin = LimitsPlugin(model_calls=3)
    talk = PluginConversation(agent(other(*looks(2), "ok", *looks(9)), look), [plugin])
    await talk.say("go")
    with pytest.raises(TurnLimitError):
        await talk.say("go")

    def leave(_: object) -> None:
        raise KeyError("left")

    with pytest.raises(KeyError):
        await talk.say("go", watch=leave)
    again = PluginConversation(agent(other(*looks(2), "ok"), look), [plugin], talk.service)
    assert said(await again.say("go")) == "ok"
