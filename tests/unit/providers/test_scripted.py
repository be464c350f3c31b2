"""The model without a network."""

import json
from typing import Any

import pytest

from lango.core.context.budget import OTHER_AGENT
from lango.core.messages.messages import Message, Reasoning, ToolCall
from lango.core.messages.streams import (
    Done,
    ReasoningDone,
    StreamEvent,
    StreamEventError,
    TextDelta,
    ThoughtDelta,
    ToolCallDone,
)
from lango.errors import RateLimitedError
from lango.providers.base import ModelRequest, Provider, ToolSpec
from lango.testing import Fault, Reply, ScriptedProvider

LOOK = ToolSpec(
    "look_up",
    "Looks something up.",
    {
        "type": "object",
        "properties": {"what": {"type": "string"}, "times": {"type": "integer"}},
        "required": ["what", "times"],
    },
)


def request(*messages: Message, **fields: Any) -> ModelRequest:
    return ModelRequest("demo", messages or (Message("user", "hello"),), **fields)


async def events(
    provider: Provider, model_request: ModelRequest | None = None
) -> list[StreamEvent]:
    return [event async for event in provider.stream(model_request or request())]


def calls(found: list[StreamEvent]) -> list[tuple[str, str, Any]]:
    made = [event.call for event in found if isinstance(event, ToolCallDone)]
    return [(call.id, call.name, json.loads(call.input)) for call in made]


def text(found: list[StreamEvent]) -> str:
    return "".join(event.text for event in found if isinstance(event, TextDelta))


async def test_replies_come_in_their_order_then_the_rule_decides() -> None:
    provider = ScriptedProvider(["one", Reply("two")])
    assert [text(await events(provider)) for _ in range(3)] == ["one", "two", "You said: hello"]
    assert len(provider.requests) == 3


async def test_the_words_around_a_quote_are_not_repeated() -> None:
    quote = f"{OTHER_AGENT}, …\n[writer] said:\n<<<BEGIN>>>\nYou said: hi\n<<<END>>>"
    found = await events(ScriptedProvider(), request(Message("user", quote)))
    assert text(found) == "[writer] said:\nYou said: hi"


@pytest.mark.parametrize("words", ["", " ", "one", " one  two\n\nthree ", "日本 語"])
async def test_small_deltas_make_the_whole_text(words: str) -> None:
    found = await events(ScriptedProvider([words]))
    assert text(found) == words
    assert all(event.text for event in found if isinstance(event, TextDelta))
    assert isinstance(found[-1], Done)


async def test_everything_a_model_can_do() -> None:
    reasoning = Reasoning("hm", "scripted", "demo", "sealed")
    call = ToolCall("a", "look", "{}")
    found = await events(ScriptedProvider([Reply("so", (call,), "hm", (reasoning,))]))
    assert found[:-1] == [
        ThoughtDelta("hm"),
        ReasoningDone(reasoning),
        TextDelta("so"),
        ToolCallDone(call),
    ]
    done = found[-1]
    assert isinstance(done, Done)
    assert done.finish_reason == "tool_calls"
    assert done.usage
    assert done.usage.input > 0
    assert done.usage.output > done.usage.reasoning > 0


async def test_faults_on_request() -> None:
    error = RateLimitedError()
    found = await events(ScriptedProvider([Reply("one two three", fault=Fault(2, error))]))
    assert found == [TextDelta("one"), TextDelta(" two"), StreamEventError(error)]
    found = await events(ScriptedProvider([Reply("one two", fault=Fault(1))]))
    assert found == [TextDelta("one")]
    assert await events(ScriptedProvider([Reply(fault=Fault())])) == []


async def test_it_calls_a_tool_that_the_user_names() -> None:
    model_request = request(Message("user", "look up 3 cats"), tools=[LOOK])
    found = await events(ScriptedProvider(), model_request)
    assert calls(found) == [("call_1", "look_up", {"what": "look up 3 cats", "times": 3})]
    assert await events(ScriptedProvider(), model_request) == found, (
        "the same request, the same answer"
    )


async def test_it_makes_the_calls_of_the_message() -> None:
    result = 'call look_up {"what": "a", "times": 1} and call look_up {"what": "b", "times": 2}'
    found = await events(ScriptedProvider(), request(Message("user", result), tools=[LOOK]))
    assert [arguments for _, _, arguments in calls(found)] == [
        {"what": "a", "times": 1},
        {"what": "b", "times": 2},
    ]


async def test_it_reports_what_a_tool_gave() -> None:
    call, result = ToolCall("a", "look_up", "{}"), ToolCall("a", "look_up", output='{"n":1}')
    talk = [
        Message("user", "look up"),
        Message("assistant", "", (call,)),
        Message("tool", "", (result,)),
    ]
    found = await events(ScriptedProvider(), request(*talk, tools=[LOOK]))
    assert text(found) == 'I asked: look_up gave {"n":1}.'
    assert calls(found) == []


async def test_a_number_that_the_message_lacks_is_the_default() -> None:
    sides = {"type": "integer", "default": 6}
    roll = ToolSpec("roll", "Rolls.", {"type": "object", "properties": {"sides": sides}})
    for words, expected in (("roll", 6), ("roll 20", 20)):
        found = await events(ScriptedProvider(), request(Message("user", words), tools=[roll]))
        assert calls(found) == [("call_1", "roll", {"sides": expected})]


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long the model would wait before each delta; the test does not wait."""
    seen: list[float] = []

    async def wait(seconds: float) -> None:
        seen.append(seconds)

    monkeypatch.setattr("lango.providers.scripted.asyncio.sleep", wait)
    return seen


async def test_the_slow_model_takes_a_second_for_each_word(waits: list[float]) -> None:
    slow = ModelRequest("slow", [Message("user", "hello")])
    assert text(await events(ScriptedProvider(), slow)) == "You said: hello"
    assert waits == [1.0] * 3


async def test_the_slow_model_is_never_silent_for_longer(waits: list[float]) -> None:
    slow = ModelRequest("slow", [Message("user", "look up 3")], [LOOK])
    found = await events(ScriptedProvider(), slow)
    assert [type(event) for event in found[-2:]] == [ToolCallDone, Done]
    assert set(waits) == {0.0}  # it delays nothing but text


async def test_the_slow_model_leaves_time_to_kill_its_worker(waits: list[float]) -> None:
    call = ToolCall("call_1", "look_up", "{}")
    talk = [
        Message("user", "look up"),
        Message("assistant", "", (call,)),
        Message("tool", "", (ToolCall("call_1", "look_up", output='{"n":1}'),)),
    ]
    found = await events(ScriptedProvider(), ModelRequest("slow", talk, [LOOK]))
    assert text(found).startswith('I asked: look_up gave {"n":1}. I say one word each second')
    assert set(waits) == {1.0}
    assert len(waits) >= 30


async def test_it_calls_nothing_when_it_may_not() -> None:
    model_request = request(Message("user", "look up"), tools=[LOOK], tool_choice="none")
    assert calls(await events(ScriptedProvider(), model_request)) == []


async def test_ids_of_calls_go_on() -> None:
    before = Message("assistant", "", (ToolCall("call_1", "look_up", "{}"),))
    model_request = request(before, Message("user", "look up"), tools=[LOOK])
    assert calls(await events(ScriptedProvider(), model_request))[0][0] == "call_2"


async def test_it_answers_in_the_form_asked_for() -> None:
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {
            "city": {"type": "string"},
            "degrees": {"anyOf": [{"type": "number"}, {"type": "null"}]},
            "sky": {"enum": ["clear", "grey"]},
            "tags": {"type": "array", "items": {"$ref": "#/$defs/Tag"}},
            "sure": {"type": ["boolean", "null"]},
            "kind": {"const": "weather"},
            "none": {"type": "null"},
            "list": {"type": "array"},
            "optional": {"type": "string"},
        },
        "required": ["city", "degrees", "sky", "tags", "sure", "kind", "none", "list"],
        "$defs": {"Tag": {"type": "object", "properties": {"n": {"type": "integer"}}}},
    }
    model_request = request(Message("user", "grey, -2.5"), output_schema=schema)
    assert json.loads(text(await events(ScriptedProvider(), model_request))) == {
        "city": "You said: grey, -2.5",
        "degrees": -2.5,
        "sky": "grey",
        "tags": [{"n": -2}],
        "sure": True,
        "kind": "weather",
        "none": None,
        "list": [],
    }
