"""The history budget before every call of a model that is none of ours."""

from collections.abc import Callable
from typing import Any

import pytest
from google.genai import types

import lango
from lango.adk.models.adapter import ModelAdapter
from lango.adk.models.convert import convert_messages
from lango.adk.plugins.budget import BudgetPlugin
from lango.core.context.budget import OTHER_AGENT, request_tokens
from lango.core.messages.messages import Message
from lango.errors import BadRequestError, ContextTooLongError
from lango.providers.scripted import Fault
from lango.testing import Reply, ScriptedProvider
from tests.adk.plugins.plugin_talk import (
    PluginConversation,
    agent,
    called,
    calling,
    other,
    ours,
    said,
)
from tests.support.conversations import problems

LONG = "word " * 200


async def look(number: int = 0) -> dict[str, Any]:
    """Look at a number."""
    return {"seen": number, "text": LONG}


def tokens(contents: list[types.Content]) -> int:
    return sum(map(request_tokens, convert_messages(contents)))


async def test_every_request_of_a_long_talk_fits_and_is_valid() -> None:
    replies = [
        [called("look", f"a{n}", number=n), called("look", f"b{n}", number=n)] for n in range(8)
    ]
    model = other(*[reply for pair in replies for reply in (pair, "seen")])
    talk = PluginConversation(agent(model, look), [BudgetPlugin(1_000)])
    for number in range(8):
        assert said(await talk.say(f"look at {number}")) == "seen"
    assert len(model.requests) == 16
    for contents in model.requests:
        assert tokens(contents) <= 1_000
        assert problems(convert_messages(contents)) == []
        assert contents[0].role == "user"
        assert contents[0].parts[0].text  # type: ignore[index]
    last = model.requests[-1]
    assert any(part.text == "look at 7" for content in last for part in content.parts or [])
    assert len(last) < 32, "nothing was ever cut"


async def test_the_session_itself_is_not_cut() -> None:
    model = other(called("look", "a", number=1), "seen")
    talk = PluginConversation(agent(model, look), [BudgetPlugin(200)])
    await talk.say("look")
    session = await talk.session()
    [answer] = [one for event in session.events for one in event.get_function_responses()]
    assert answer.response == {"seen": 1, "text": LONG}
    [sent] = [part.function_response for part in model.requests[1][-1].parts or []]
    assert sent is not None
    assert (sent.response or {})["truncated"] is True


async def test_what_fits_is_not_touched() -> None:
    plain, bounded = other("hm", "ok"), other("hm", "ok")
    for model, plugins in ((plain, []), (bounded, [BudgetPlugin()])):
        talk = PluginConversation(agent(model, look), plugins)
        await talk.say("one")
        await talk.say("two")
    assert bounded.requests == plain.requests


async def test_an_open_turn_that_cannot_fit_ends_with_its_own_error() -> None:
    model = other()
    talk = PluginConversation(agent(model), [BudgetPlugin(100)])
    with pytest.raises(ContextTooLongError, match="open turn alone") as caught:
        await talk.say(LONG)
    assert type(caught.value) is ContextTooLongError
    assert (caught.value.provider, caught.value.model) == ("othermodel", "other-1")
    assert model.requests == []
    assert (await talk.session()).events[-1].error_code == "ContextTooLongError"


async def test_the_window_leaves_room_for_instruction_tools_and_answer() -> None:
    model = other(*["ok"] * 9)
    talk = PluginConversation(
        agent(model, look, instruction=LONG), [BudgetPlugin(None, context_window=2_000)]
    )
    for _ in range(6):
        await talk.say(LONG)
    assert max(map(tokens, model.requests)) <= 2_000 * 0.85 - 500 - 300


async def test_our_own_model_is_left_to_itself() -> None:
    model = ours("ok", token_budget=10_000)
    talk = PluginConversation(agent(model), [BudgetPlugin(1)])
    assert said(await talk.say(LONG)) == "ok"


REFUSED = BadRequestError("refused")


def talks(
    kind: str, budget: int, *replies: str
) -> tuple[PluginConversation, Callable[[], list[str]]]:
    """An agent whose model fails three times, then says this; and the texts it last got."""
    if kind == "another":
        theirs = other(*[REFUSED] * 3, *replies)
        return PluginConversation(agent(theirs, look), [BudgetPlugin(budget)]), lambda: [
            part.text or "" for content in theirs.requests[-1] for part in content.parts or []
        ]
    provider = ScriptedProvider([*[Reply("x", fault=Fault(0, REFUSED))] * 3, *replies])
    model = ModelAdapter(provider, "demo", token_budget=budget)
    known = lango.plugins(token_budget=budget) if kind == "ours, in a session" else []
    return PluginConversation(agent(model, look), known), lambda: [
        message.content for message in provider.requests[-1].messages if message.role != "system"
    ]


@pytest.mark.parametrize("kind", ["ours", "ours, in a session", "another"])
async def test_failed_turns_leave_room_for_the_next(kind: str) -> None:
    """Their messages stand right before the open turn, and are left out like any history."""
    talk, sent = talks(kind, request_tokens(Message("user", LONG)) * 5 // 2, "well", "and well")
    for number in range(3):
        with pytest.raises(BadRequestError):
            await talk.say(f"{number} {LONG}")
    assert said(await talk.say(f"3 {LONG}")) == "well"
    assert [text[0] for text in sent() if text] == ["2", "3"]
    assert said(await talk.say(f"4 {LONG}")) == "and well"
    assert [text[0] for text in sent() if text] == ["3", "w", "4"]


async def test_turns_of_another_agent_are_history_too() -> None:
    """All of them reach an agent as the user's words, as those do of a failed turn."""
    call = calling("transfer_to_agent", "t", '{"agent_name": "below"}')
    provider = ScriptedProvider([*[f"{number} {LONG}" for number in range(3)], call, "done"])
    budget = request_tokens(Message("user", LONG)) * 3
    model = ModelAdapter(provider, "demo", token_budget=budget)
    root = agent(model, sub_agents=[agent(model, name="below")])
    talk = PluginConversation(root, lango.plugins(token_budget=budget))
    for number in range(3):
        await talk.say(str(number))
    assert said(await talk.say("pass it on")) == "done"
    texts = [message.content for message in provider.requests[-1].messages]
    assert "pass it on" in texts
    quotes = [text for text in texts if text.startswith(OTHER_AGENT)]
    assert len(quotes) > 1, "what the other agent said was not told"
    assert not any("[root] said:\n" in quote and "0 word" in quote for quote in quotes)
