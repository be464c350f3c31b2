"""Which messages a load brings along."""

import logging

import pytest

from lango.core.context.tokens import message_tokens
from lango.core.messages.history import DEFAULT_TOKEN_BUDGET, token_budget_truncate
from lango.core.messages.messages import Message, ToolCall
from tests.adk.runner.scripted import unpaired
from tests.spec.talk import (
    ROOT,
    TELLINGS,
    Service,
    Telling,
    call,
    create,
    event,
    load,
    reload,
    response,
    service_on,
    text,
    texts_of,
    turn,
)

THOUSAND = "a" * 2656  # a message of exactly 1,000 tokens


def _thousand(number: int) -> str:
    """A text of 1,000 tokens that says which it is."""
    return f"{chr(ord('a') + number % 26) * 2}{THOUSAND[2:]}"


async def _talk(service: Service, turns: int) -> list[Message]:
    """Small talk, every message of 1,000 tokens and each turn an invocation of its own."""
    session = await create(service)
    for number in range(turns):
        invocation = f"turn-{number}"
        for author in ("user", ROOT):
            message = event(author, text(_thousand(number)), invocation_id=invocation)
            await service.append_event(session, message)
    return session.history


@pytest.mark.parametrize(("budget", "kept"), [(5_000, 5), (5_999, 5), (6_000, 6), (2_000, 2)])
@pytest.mark.scenario("History Truncation with explicit budget")
async def test_history_truncation_with_explicit_budget(
    budget: int, kept: int, store_url: str, tenant: str
) -> None:
    async with service_on(store_url, tenant) as service:
        whole = await _talk(service, 10)
    loaded = await reload(store_url, tenant, token_budget=budget)

    # The budget holds, and is used from the newest message back until it is spent …
    assert {message_tokens(message) for message in whole} == {1_000}
    assert loaded.history == whole[-kept:]
    assert loaded.history == token_budget_truncate(whole, budget)
    assert len(loaded.events) == kept
    assert not loaded.whole
    # … and what is older is not in what the model gets.
    async with service_on(store_url, tenant, token_budget=budget) as service:
        [request] = await turn(service, "and now?")
    assert texts_of(request) == [message.content for message in whole[-kept:]] + ["and now?"]


async def test_the_store_keeps_what_a_load_leaves_out(store_url: str, tenant: str) -> None:
    async with service_on(store_url, tenant) as service:
        whole = await _talk(service, 10)
    assert (await reload(store_url, tenant, token_budget=None)).history == whole


@pytest.mark.scenario("Default token budget")
async def test_default_token_budget(store_url: str, tenant: str) -> None:
    assert DEFAULT_TOKEN_BUDGET == 32_000
    message = Message("user", THOUSAND)
    assert len(token_budget_truncate([message] * 50)) == 32
    assert len(token_budget_truncate([message] * 50, 0)) == 32

    async with service_on(store_url, tenant) as service:
        whole = await _talk(service, 20)
        assert len(whole) == 40
        # No budget given, and 0, which says the same.
        assert (await load(service)).history == whole[-32:]
    assert (await reload(store_url, tenant, token_budget=0)).history == whole[-32:]
    async with service_on(store_url, tenant) as service:
        [request] = await turn(service, "and now?")
    assert len(request) == 33


CALLED = [
    Message("user", "look it up", (), "user"),
    Message("assistant", "", (ToolCall("1", "look", input='{"number":1}'),), ROOT),
    Message("tool", '{"a":1}', (ToolCall("1", "look", output='{"a":1}'),), ROOT),
    Message("assistant", "found it", (), ROOT),
]


@pytest.mark.parametrize("role", ["tool", "function"])
@pytest.mark.scenario("Truncation cuts before tool message")
async def test_truncation_cuts_before_tool_message(role: str, store_url: str, tenant: str) -> None:
    answer = Message(role, CALLED[2].content, CALLED[2].tool_calls, ROOT)
    history = [*CALLED[:2], answer, CALLED[3]]
    budget = message_tokens(answer) + message_tokens(CALLED[3])
    assert token_budget_truncate(history, budget) == [CALLED[3]]

    # The same for a window of the store, whose newest turn is another one.
    async with service_on(store_url, tenant) as service:
        session = await create(service)
        for message in (
            event("user", text("look it up")),
            event(ROOT, call("1", "look", {"number": 1})),
            event(ROOT, response("1", "look", {"a": 1})),
            event(ROOT, text("found it")),
            event("user", text("thanks"), invocation_id="turn-2"),
        ):
            await service.append_event(session, message)
    thanks = Message("user", "thanks", (), "user")
    assert session.history == [*CALLED, thanks]
    room = budget + message_tokens(thanks)
    assert (await reload(store_url, tenant, token_budget=room)).history == [CALLED[3], thanks]


async def test_no_request_is_torn_wherever_the_cut_lies(
    store_url: str, tenant: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The history of a real Runner, cut at every position: no call without its result."""
    caplog.set_level(logging.WARNING, logger="google_adk")
    async with service_on(store_url, tenant) as service:
        await create(service)
        await turn(service, 'do look {"number": 1} then look {"number": 2}')
        await turn(service, 'do look {"number": 3} and look {"number": 4}')
    begins_with: list[str] = []
    # Each turn adds a few tokens of its own: the step is larger, so that the cut moves back.
    for budget in range(20, 600, 45):
        async with service_on(store_url, tenant, token_budget=budget) as service:
            [request] = await turn(service, "next")
            begins_with.append(service.handed[-1].history[0].role)
        assert not unpaired(request)
        assert texts_of(request)[-1] == "next"
    assert set(begins_with) == {"user", "assistant"}
    assert [record.getMessage() for record in caplog.records] == []


@pytest.mark.scenario("No truncation preserves trailing FunctionCall")
async def test_no_truncation_preserves_trailing_function_call(store_url: str, tenant: str) -> None:
    pending = CALLED[:2]
    assert token_budget_truncate(pending) == pending
    assert token_budget_truncate(pending, sum(map(message_tokens, pending))) == pending

    async with service_on(store_url, tenant) as service:
        session = await create(service)
        await service.append_event(session, event("user", text("look it up")))
        await service.append_event(session, event(ROOT, call("1", "look", {"number": 1})))
    loaded = await reload(store_url, tenant)
    assert loaded.whole
    assert loaded.history == pending
    assert [one.id for one in loaded.events[-1].get_function_calls()] == ["1"]


async def test_a_run_that_ended_at_its_call_keeps_the_call(store_url: str, tenant: str) -> None:
    """A real Runner, left as a crash leaves it: right after the call, before its result."""
    async with service_on(store_url, tenant) as service:
        await create(service)
        await turn(service, 'do look {"number": 1}', stop_after=1)
    loaded = await reload(store_url, tenant)
    assert [message.role for message in loaded.history] == ["user", "assistant"]
    [pending] = loaded.events[-1].get_function_calls()
    assert (pending.name, pending.args) == ("look", {"number": 1})


@pytest.mark.parametrize("tell", TELLINGS)
async def test_a_history_that_fits_is_whole(tell: Telling, store_url: str, tenant: str) -> None:
    """To the very token."""
    async with service_on(store_url, tenant) as service:
        session = await tell(service)
    room = sum(map(message_tokens, session.history))
    loaded = await reload(store_url, tenant, token_budget=room)
    assert loaded.whole
    assert loaded.history == session.history
