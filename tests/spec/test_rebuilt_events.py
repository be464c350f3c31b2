"""Stored calls and results on their way back to ADK, those of older systems among them."""

import json
from typing import Any

import pytest
from google.adk.events.event import Event

from lango.adk.sessions.decode import EventsAdapter
from lango.core.messages.messages import Message, ToolCall
from lango.testing.same import differences
from tests.adk.runner.scripted import unpaired
from tests.spec.talk import (
    ROOT,
    TELLINGS,
    Telling,
    create,
    insert_rows,
    load,
    reload,
    service_on,
    texts_of,
    turn,
)

LISTED = ToolCall("adk-uuid-123", "exec", input='{"cmd":"ls"}')


async def _old_session(url: str, tenant: str, *history: Message) -> list[Event]:
    """The events of a session whose rows an older system wrote."""
    async with service_on(url, tenant) as service:
        await create(service)
        await insert_rows(url, tenant, history)
        return (await load(service)).events


def _said(event: Event) -> tuple[str | None, list[dict[str, Any]]]:
    """The content's role, and of each part what is set."""
    content = event.content
    assert content
    return content.role, [part.model_dump(exclude_none=True) for part in content.parts or []]


@pytest.mark.parametrize("role", ["assistant", "model"])
@pytest.mark.scenario("Assistant message with FunctionCall ToolCalls")
async def test_assistant_message_with_function_call_tool_calls(
    role: str, store_url: str, tenant: str
) -> None:
    message = Message(role, "", (LISTED,))
    expected = {"id": "adk-uuid-123", "name": "exec", "args": {"cmd": "ls"}}
    [rebuilt] = EventsAdapter([message], ROOT).all()
    [loaded] = await _old_session(store_url, tenant, message)
    for event in (rebuilt, loaded):
        assert _said(event) == ("model", [{"function_call": expected}])


@pytest.mark.parametrize("role", ["assistant", "model"])
async def test_words_beside_a_call_come_first(role: str) -> None:
    [event] = EventsAdapter([Message(role, "let me see", (LISTED,))]).all()
    _, parts = _said(event)
    assert [*map(list, parts)] == [["text"], ["function_call"]]


@pytest.mark.parametrize("role", ["tool", "function"])
@pytest.mark.scenario("Tool message with FunctionResponse metadata in ToolCalls")
async def test_tool_message_with_function_response_metadata_in_tool_calls(
    role: str, store_url: str, tenant: str
) -> None:
    answered = ToolCall("adk-uuid-123", "exec", output='{"result":"ok"}')
    expected = {"id": "adk-uuid-123", "name": "exec", "response": {"result": "ok"}}
    history = [Message("assistant", "", (LISTED,)), Message(role, '{"result":"ok"}', (answered,))]
    rebuilt = EventsAdapter(history, ROOT).all()
    loaded = await _old_session(store_url, tenant, *history)
    for events in (rebuilt, loaded):
        assert _said(events[1]) == ("function", [{"function_response": expected}])


@pytest.mark.parametrize("tell", TELLINGS)
async def test_calls_and_results_come_back_from_the_store(
    tell: Telling, store_url: str, tenant: str
) -> None:
    """Unchanged, whichever way made them, but for the content role of a result."""
    async with service_on(store_url, tenant) as service:
        held = await tell(service)
    loaded = await reload(store_url, tenant)
    assert held.events
    for before, after in zip(held.events, loaded.events, strict=True):
        assert before.content
        assert after.content
        assert differences(before.content.parts, after.content.parts) == []
        is_result = bool(before.get_function_responses())
        assert after.content.role == ("function" if is_result else before.content.role)


OLD_CALL = Message("model", "", (ToolCall("call_exec", "exec", input='{"cmd":"ls"}'),))


@pytest.mark.parametrize("role", ["tool", "function"])
@pytest.mark.scenario("Legacy tool message without ToolCalls")
async def test_legacy_tool_message_without_tool_calls(
    role: str, store_url: str, tenant: str
) -> None:
    history = [Message("user", "list"), OLD_CALL, Message(role, '{"result":"file.txt"}')]
    expected = {"id": "call_exec", "name": "exec", "response": {"result": "file.txt"}}
    rebuilt = EventsAdapter(history, ROOT).all()
    loaded = await _old_session(store_url, tenant, *history)
    for events in (rebuilt, loaded):
        assert _said(events[2]) == ("function", [{"function_response": expected}])
        assert events[2].author == events[1].author == ROOT


@pytest.mark.parametrize("role", ["tool", "function"])
async def test_a_runner_goes_on_behind_legacy_rows(role: str, store_url: str, tenant: str) -> None:
    """Call and result reach the model as a pair."""
    history = [
        Message("user", "list"),
        OLD_CALL,
        Message(role, '{"result":"file.txt"}'),
        Message("model", "one file"),
    ]
    await _old_session(store_url, tenant, *history)
    async with service_on(store_url, tenant) as service:
        [request] = await turn(service, "and now?")
    assert [content.role for content in request] == ["user", "model", "function", "model", "user"]
    assert not unpaired(request)
    assert texts_of(request) == ["list", "one file", "and now?"]


def test_several_legacy_results_answer_in_the_order_of_the_calls() -> None:
    calls = tuple(ToolCall(f"call_{name}", name, input="{}") for name in ("exec", "search"))
    answers = [Message("function", json.dumps({"result": name})) for name in ("first", "second")]
    _, first, second = EventsAdapter([Message("model", "", calls), *answers], ROOT).all()
    [one], [two] = first.get_function_responses(), second.get_function_responses()
    assert (one.id, one.name, one.response) == ("call_exec", "exec", {"result": "first"})
    assert (two.id, two.name, two.response) == ("call_search", "search", {"result": "second"})


@pytest.mark.parametrize(
    ("content", "result"),
    [
        ("plain text", {"result": "plain text"}),
        ("[1, 2]", {"result": [1, 2]}),
        ('"quoted"', {"result": "quoted"}),
        ('{"cut": ', {"result": '{"cut": '}),
        ("", {"result": ""}),
    ],
)
def test_a_legacy_result_that_is_no_object_becomes_one(
    content: str, result: dict[str, Any]
) -> None:
    events = EventsAdapter([OLD_CALL, Message("tool", content)], ROOT).all()
    assert [one.response for one in events[1].get_function_responses()] == [result]


@pytest.mark.parametrize("spoken", [[Message("tool", "{}")], []], ids=["answered", "unanswered"])
def test_calls_before_the_preceding_assistant_message_are_no_context(spoken: list[Message]) -> None:
    history = [OLD_CALL, *spoken, Message("model", "never mind"), Message("tool", "late")]
    *_, late = EventsAdapter(history, ROOT).all()
    assert _said(late)[1] == [{"text": "late"}]


@pytest.mark.parametrize("role", ["tool", "function"])
@pytest.mark.scenario("Tool message with no context for FunctionResponse")
async def test_tool_message_with_no_context_for_function_response(
    role: str, store_url: str, tenant: str
) -> None:
    history = [Message("user", "hello"), Message(role, '{"result":"file.txt"}')]
    rebuilt = EventsAdapter(history, ROOT).all()
    loaded = await _old_session(store_url, tenant, *history)
    for events in (rebuilt, loaded):
        assert _said(events[1])[1] == [{"text": '{"result":"file.txt"}'}]
        assert events[1].get_function_responses() == []
    # A real Runner can go on from there.
    async with service_on(store_url, tenant) as service:
        [request] = await turn(service, "and now?")
    assert texts_of(request) == ["hello", '{"result":"file.txt"}', "and now?"]
