"""Tool calls and their results on their way into the store."""

import json

import pytest

from lango.core.messages.messages import Message, ToolCall
from tests.adk.runner.scripted import Request, unpaired
from tests.spec.talk import (
    ARGUMENTS,
    RESULT,
    ROOT,
    by_runner,
    call,
    compact,
    create,
    event,
    reload,
    response,
    rows,
    service_on,
    text,
    turn,
)


def _calls(message: Message) -> list[tuple[str, str]]:
    return [(one.id, one.name) for one in message.tool_calls]


@pytest.mark.scenario("FunctionCall with original ID")
async def test_function_call_with_original_id(store_url: str, tenant: str) -> None:
    async with service_on(store_url, tenant) as service:
        session = await create(service)
        await service.append_event(session, event(ROOT, call("adk-uuid-123", "exec", {"a": 1})))
    loaded = await reload(store_url, tenant)
    assert session.history == loaded.history
    assert loaded.history[0].tool_calls == (ToolCall("adk-uuid-123", "exec", input='{"a":1}'),)
    [row] = await rows(store_url, tenant)
    assert row.tool_calls == [{"id": "adk-uuid-123", "name": "exec", "input": {"a": 1}}]


async def test_calls_of_a_runner_keep_their_ids(store_url: str, tenant: str) -> None:
    async with service_on(store_url, tenant) as service:
        held = await by_runner(service)
    made = [one.id for shown in held.events for one in shown.get_function_calls()]
    answered = [one.id for shown in held.events for one in shown.get_function_responses()]
    loaded = await reload(store_url, tenant)
    assert made == answered
    assert all(made)
    assert _calls(loaded.history[1]) == _calls(loaded.history[2]) == [(made[0], "remember")]


@pytest.mark.parametrize("missing", [None, ""])
@pytest.mark.scenario("FunctionCall without ID")
async def test_function_call_without_id(missing: str | None, store_url: str, tenant: str) -> None:
    async with service_on(store_url, tenant) as service:
        session = await create(service)
        await service.append_event(session, event(ROOT, call(missing, "search", {})))
    loaded = await reload(store_url, tenant)
    assert _calls(session.history[0]) == _calls(loaded.history[0]) == [("call_search", "search")]
    [row] = await rows(store_url, tenant)
    assert row.tool_calls[0]["id"] == "call_search"
    for one in (session, loaded):
        assert [made.id for made in one.events[0].get_function_calls()] == ["call_search"]


async def test_parallel_calls_without_ids_never_share_one(store_url: str, tenant: str) -> None:
    """And a real Runner, led on from there, pairs each with its own result."""
    numbers = [1, 2, 3]
    async with service_on(store_url, tenant) as service:
        session = await create(service)
        await service.append_event(session, event("user", text("look, three times")))
        called = [call("", "look", {"number": number}) for number in numbers]
        await service.append_event(session, event(ROOT, *called))
        answered = [response("", "look", {"number": number}) for number in numbers]
        await service.append_event(session, event(ROOT, *answered, role="user"))
        await service.append_event(session, event(ROOT, text("seen")))
    ids = ["call_look", "call_look_2", "call_look_3"]
    loaded = await reload(store_url, tenant)
    assert [one.id for one in loaded.history[1].tool_calls] == ids
    assert [one.id for one in loaded.history[2].tool_calls] == ids
    async with service_on(store_url, tenant) as service:
        [request] = await turn(service, "and now?")
    assert not unpaired(request)
    assert _results(request) == {
        name: {"number": number} for name, number in zip(ids, numbers, strict=True)
    }


def _results(request: Request) -> dict[str | None, object]:
    parts = [part for content in request for part in content.parts or []]
    answers = [part.function_response for part in parts if part.function_response]
    return {answer.id: answer.response for answer in answers}


@pytest.mark.parametrize("role", ["user", "function"])  # as ADK has it, and as we give it back
@pytest.mark.scenario("FunctionResponse with full metadata")
async def test_function_response_with_full_metadata(role: str, store_url: str, tenant: str) -> None:
    output = {"output": "file.txt"}
    async with service_on(store_url, tenant) as service:
        session = await create(service)
        answered = event(ROOT, response("adk-uuid-123", "exec", output), role=role)
        await service.append_event(session, answered)
    loaded = await reload(store_url, tenant)
    for [message] in (session.history, loaded.history):
        [stored] = message.tool_calls
        assert (stored.id, stored.name) == ("adk-uuid-123", "exec")
        assert json.loads(stored.output) == output
        assert json.loads(message.content) == output
        assert message.role == "tool"
    # A person reading SQL finds it too, once.
    [row] = await rows(store_url, tenant)
    assert (row.role, row.tool_calls[0]["output"]) == ("tool", output)


async def test_results_of_a_runner_keep_all_they_say(store_url: str, tenant: str) -> None:
    async with service_on(store_url, tenant) as service:
        held = await by_runner(service)
    loaded = await reload(store_url, tenant)
    [calls], [answered] = loaded.history[1].tool_calls, loaded.history[2].tool_calls
    assert (answered.id, answered.name) == (calls.id, calls.name)
    assert (calls.input, answered.output) == (compact(ARGUMENTS), compact(RESULT))
    assert loaded.history[2].content == held.history[2].content == compact(RESULT)


async def test_several_results_are_all_in_the_content(store_url: str, tenant: str) -> None:
    async with service_on(store_url, tenant) as service:
        session = await create(service)
        parts = [response(str(number), "look", {"number": number}) for number in (1, 2)]
        await service.append_event(session, event(ROOT, *parts, role="user"))
    [message] = (await reload(store_url, tenant)).history
    assert message.content == '{"number":1}\n{"number":2}'
    assert session.history == [message]
