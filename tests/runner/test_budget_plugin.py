"""The history budget before every call of a model that is none of ours."""

from typing import Any

import pytest
from google.genai import types

from lango.adk.convert import convert_messages
from lango.adk.plugins.budget import BudgetPlugin
from lango.core.budget import request_tokens
from lango.errors import ContextTooLongError
from lango.testing.conversations import problems
from tests.runner.plugin_talk import Talk, agent, called, other, ours, said

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
    talk = Talk(agent(model, look), [BudgetPlugin(1_000)])
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
    talk = Talk(agent(model, look), [BudgetPlugin(200)])
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
        talk = Talk(agent(model, look), plugins)
        await talk.say("one")
        await talk.say("two")
    assert bounded.requests == plain.requests


async def test_an_open_turn_that_cannot_fit_ends_with_its_own_error() -> None:
    model = other()
    talk = Talk(agent(model), [BudgetPlugin(100)])
    with pytest.raises(ContextTooLongError, match="open turn alone") as caught:
        await talk.say(LONG)
    assert type(caught.value) is ContextTooLongError
    assert (caught.value.provider, caught.value.model) == ("othermodel", "other-1")
    assert model.requests == []
    assert (await talk.session()).events[-1].error_code == "ContextTooLongError"


async def test_the_window_leaves_room_for_instruction_tools_and_answer() -> None:
    model = other(*["ok"] * 9)
    talk = Talk(agent(model, look, instruction=LONG), [BudgetPlugin(None, context_window=2_000)])
    for _ in range(6):
        await talk.say(LONG)
    assert max(map(tokens, model.requests)) <= 2_000 * 0.85 - 500 - 300


async def test_our_own_model_is_left_to_itself() -> None:
    model = ours("ok", token_budget=10_000)
    talk = Talk(agent(model), [BudgetPlugin(1)])
    assert said(await talk.say(LONG)) == "ok"
