"""A conversation that changes its model in the middle: every wire after every other."""

from itertools import permutations

import pytest

from lango.core.messages.messages import Message
from lango.core.values import json_text
from lango.testing.wires import WIRES, Call, ScriptedAnswer, WireServer
from tests.providers.conversation import (
    IMAGE,
    TOOLS,
    ask,
    done_of,
    message_of,
    results_of,
    say,
    text_of,
)

MODELS = {
    "openai_chat": "gpt-5",
    "openai_responses": "gpt-5",
    "anthropic": "claude-sonnet-4-5",
    "gemini": "gemini-3-pro",
}
SIGNATURE = "c2lnbmVkLWJ5LXRoZS1maXJzdA=="
CALLING = ScriptedAnswer(
    "Let me see.",
    (Call("add", '{"a": 2, "b": 3}', "call_a"), Call("now", "{}", "call_b")),
    thoughts="This wants adding.",
    signature=SIGNATURE,
)


async def first_turn(wire: str) -> list[Message]:
    """A turn with an image, thoughts and two calls, as the wire gave it."""
    talk = [Message("system", "Be brief."), Message("user", "What is this?", media=(IMAGE,))]
    async with WireServer(wire, CALLING) as server:
        events = await say(server.provider(), ask(MODELS[wire], talk, thinking=True))
        assert server.refused == []
    text = message_of(events)
    assert len(text.tool_calls) == 2
    assert text.reasoning
    return [*talk, text, *results_of(text)]


@pytest.mark.parametrize(("before", "after"), list(permutations(WIRES, 2)))
async def test_switch(before: str, after: str) -> None:
    talk = await first_turn(before)
    async with WireServer(after, CALLING, ScriptedAnswer("Five.")) as server:
        provider = server.provider()
        # In the middle of the turn, with open results, and then in a new one.
        events = await say(provider, ask(MODELS[after], talk, thinking=True))
        text = message_of(events)
        talk += [text, *results_of(text)]
        events = await say(provider, ask(MODELS[after], talk, thinking=True))
        talk += [message_of(events), Message("user", "Thank you.")]
        ended = await say(provider, ask(MODELS[after], talk, tools=()))
        assert server.refused == []
        sent = json_text(server.requests[0].body)
    assert (text_of(events), text_of(ended)) == ("Five.", "Five.")
    assert done_of(ended).finish_reason == "stop"
    assert SIGNATURE not in sent, "another family's data was sent"
    assert "This wants adding." not in sent


@pytest.mark.parametrize("wire", list(WIRES))
async def test_the_same_wire_gets_its_own_back(wire: str) -> None:
    talk = await first_turn(wire)
    async with WireServer(wire, ScriptedAnswer("Five.")) as server:
        await say(server.provider(), ask(MODELS[wire], talk, tools=TOOLS, thinking=True))
        assert server.refused == []
        sent = json_text(server.requests[0].body)
    if wire == "gemini":  # bytes there, which the test server enciphers once more
        assert "YzJsbmJtVmtMV0o1TFhSb1pTMW1hWEp6ZEE9PQ==" in sent
    elif wire != "openai_chat":  # OpenAI itself gives no thoughts there, and takes none
        assert SIGNATURE in sent
