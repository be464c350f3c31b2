"""The model adapter: one request out, one answer back."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing

import pytest
from google.adk.agents import LlmAgent
from google.adk.models.registry import LLMRegistry
from google.genai import types

from lango.adk.models.adapter import ModelAdapter
from lango.adk.models.caller import ModelCaller, current_caller
from lango.core.context.model_calls import ModelCall
from lango.core.messages.messages import Message, ToolCall
from lango.core.messages.streams import Done, StreamEvent, TextDelta, Usage
from lango.errors import (
    BadStreamError,
    ContextTooLongError,
    ModelError,
    ModelUnavailableError,
    UnknownModelError,
)
from lango.providers.base import ModelRequest
from lango.providers.policy.retry import Policy
from lango.testing import Fault, Reply, ScriptedProvider
from tests.unit.adk.models.asking import THOUSAND, TOO_LONG, ask, request, scripted, texts

# --- names -----------------------------------------------------------------------------------


def test_a_name_says_provider_and_model() -> None:
    assert ModelAdapter("scripted:demo").model == "scripted:demo"
    assert ModelAdapter(ScriptedProvider()).model == "scripted"
    assert ModelAdapter(provider=ScriptedProvider(), model="x").model == "scripted:x"


@pytest.mark.parametrize("name", ["unknown:gpt", "scripted", "", "gpt-5"])
def test_a_name_that_says_nothing_is_an_error(name: str) -> None:
    with pytest.raises(UnknownModelError):
        ModelAdapter(name)


def test_adks_registry_knows_our_names() -> None:
    assert isinstance(LLMRegistry.new_llm("lango/scripted:demo"), ModelAdapter)
    model = LlmAgent(name="root", model="lango/scripted:demo").canonical_model
    assert model.model == "scripted:demo"


def test_adk_is_not_told_of_what_not_every_wire_can_do() -> None:
    assert not scripted()[0].capabilities.output_schema_and_tools


# --- answers ---------------------------------------------------------------------------------


async def test_the_final_response_repeats_what_was_streamed() -> None:
    model, _ = scripted(Reply("one two  three\n", thoughts="let me see"))
    *partials, final = await ask(model, stream=True)
    assert all(partial.partial and not partial.turn_complete for partial in partials)
    assert (final.partial, final.turn_complete) == (False, True)
    assert texts(partials) == ["let", " me", " see", "one", " two", "  three", "\n"]
    assert texts([final]) == ["let me see", "one two  three\n"]


async def test_without_streaming_there_is_one_response() -> None:
    calls = (ToolCall("a", "look", "{}"), ToolCall("b", "look", "{}"))
    model, _ = scripted(Reply("one two", calls))
    [response] = await ask(model)
    assert (response.partial, response.turn_complete) == (False, True)
    assert texts([response]) == ["one two", None, None]


@pytest.mark.parametrize("stream", [True, False])
async def test_an_error_carries_the_text_before_it(stream: bool) -> None:
    error = ModelUnavailableError("gone")
    model, _ = scripted(Reply("one two three", fault=Fault(2, error)))
    responses = model.generate_content_async(request(), stream=stream)
    for words in ("one", " two") if stream else ():
        assert texts([await anext(responses)]) == [words]
    with pytest.raises(ModelUnavailableError) as caught:
        await anext(responses)
    assert caught.value is error
    assert (error.partial_text, error.provider, error.model) == ("one two", "scripted", "demo")
    with pytest.raises(StopAsyncIteration):
        await anext(responses)


async def test_a_stream_that_just_ends_is_no_answer() -> None:
    model, _ = scripted(Reply("one two", fault=Fault(1)))
    with pytest.raises(BadStreamError) as caught:
        await ask(model)
    assert caught.value.partial_text == "one"


async def test_a_provider_that_raises_is_heard() -> None:
    def rule(_: ModelRequest) -> Reply:
        raise RuntimeError("a bug")

    with pytest.raises(RuntimeError, match="a bug"):
        await ask(ModelAdapter(ScriptedProvider(rule=rule)))


async def test_any_iterator_will_do_and_nothing_counts_after_the_end() -> None:
    class Odd:
        name = "odd"

        def stream(self, request: ModelRequest) -> AsyncIterator[StreamEvent]:
            del request
            events = iter([TextDelta("a"), Done("stop"), TextDelta("b"), Done("length")])

            class Events:
                def __aiter__(self) -> "Events":
                    return self

                async def __anext__(self) -> StreamEvent:
                    try:
                        return next(events)
                    except StopIteration:
                        raise StopAsyncIteration from None

            return Events()

    [response] = await ask(ModelAdapter(Odd()))
    assert texts([response]) == ["a"]


async def test_a_provider_by_itself_is_asked_once_and_a_policy_asks_again() -> None:
    flaky = [Reply(fault=Fault(0, ModelUnavailableError())), Reply("there")]
    with pytest.raises(ModelUnavailableError):
        await ask(ModelAdapter(ScriptedProvider(flaky)))
    patient = ModelAdapter(ScriptedProvider(flaky), policy=Policy(first_wait=0.001))
    assert texts(await ask(patient)) == ["there"]


async def test_a_consumer_may_leave() -> None:
    records: list[ModelCall] = []
    model, _ = scripted(Reply("one two three"), on_model_call=records.append)
    async with aclosing(model.generate_content_async(request(), stream=True)) as responses:
        async for _ in responses:
            break
    assert [record.attempt.outcome for record in records] == ["cancelled"]


# --- requests --------------------------------------------------------------------------------


async def test_a_request_is_paired_before_it_leaves() -> None:
    model, provider = scripted("ok")
    called = types.Part(function_call=types.FunctionCall(name="look", args={}))
    model_request = request("hi")
    model_request.contents.append(types.Content(role="model", parts=[called]))
    model_request.contents.append(types.Content(role="user", parts=[types.Part(text="well?")]))
    await ask(model, model_request)
    roles = [message.role for message in provider.requests[0].messages]
    assert roles == ["user", "assistant", "tool", "user"]


async def test_an_answers_call_never_takes_an_id_of_the_history() -> None:
    model, _ = scripted(Reply(calls=(ToolCall("call_look", "look", "{}"),)))
    called = types.Part(function_call=types.FunctionCall(name="look", args={}))
    model_request = request("hi")
    model_request.contents.append(types.Content(role="model", parts=[called]))
    [response] = await ask(model, model_request)
    [call] = response.get_function_calls()
    assert call.id
    assert call.id != "call_look"


async def test_a_request_is_cut_to_its_budget() -> None:
    records: list[ModelCall] = []
    model, provider = scripted("ok", token_budget=1_500, on_model_call=records.append)
    await ask(model, request(THOUSAND, THOUSAND, "last", system_instruction="be brief"))
    assert [m.content for m in provider.requests[0].messages] == ["be brief", THOUSAND, "last"]
    [record] = records
    assert (record.budget, record.sent, record.left_out) == (1_500, 2, 1)


async def test_the_window_bounds_a_request_with_all_that_is_in_it() -> None:
    model, provider = scripted("ok", token_budget=None, context_window=4_000)
    await ask(model, request(THOUSAND, THOUSAND, "last", max_output_tokens=1_000))
    assert len(provider.requests[0].messages) == 3
    model, provider = scripted("ok", token_budget=None, context_window=4_000)
    system = "b" * 1_328  # 502 tokens
    await ask(
        model,
        request(THOUSAND, THOUSAND, "last", max_output_tokens=1_000, system_instruction=system),
    )
    assert len(provider.requests[0].messages) == 3
    assert provider.requests[0].messages[1].content == THOUSAND


async def test_what_never_fits_is_not_sent() -> None:
    model, provider = scripted("ok", token_budget=500)
    with pytest.raises(ContextTooLongError, match="scripted demo"):
        await ask(model, request("a", "b", THOUSAND))
    assert not provider.requests


# --- too long for the provider ---------------------------------------------------------------


async def test_too_long_is_tried_once_more_with_less() -> None:
    records: list[ModelCall] = []
    model, provider = scripted(TOO_LONG, "ok", on_model_call=records.append)
    [response] = await ask(model, request(THOUSAND, "so", "last"))
    assert texts([response]) == ["ok"]
    first, second = (request.messages for request in provider.requests)
    assert (len(first), len(second)) == (3, 2)
    assert second[-1] == Message("user", "last")
    assert [(r.number, r.attempt.outcome, r.attempt.error, r.sent) for r in records] == [
        (1, "failed", "ContextTooLongError", 3),
        (2, "completed", "", 2),
    ]


async def test_too_long_twice_is_an_error() -> None:
    model, provider = scripted(TOO_LONG, TOO_LONG, "ok")
    with pytest.raises(ContextTooLongError):
        await ask(model, request(*[THOUSAND] * 4, "last"))
    assert len(provider.requests) == 2


async def test_too_long_with_nothing_to_leave_out_is_an_error_at_once() -> None:
    model, provider = scripted(TOO_LONG, "ok")
    with pytest.raises(ContextTooLongError):
        await ask(model, request("only this"))
    assert len(provider.requests) == 1


async def test_too_long_after_the_first_word_is_an_error() -> None:
    model, provider = scripted(Reply("a b", fault=Fault(1, ContextTooLongError())), "ok")
    with pytest.raises(ContextTooLongError):
        await ask(model, request(THOUSAND, THOUSAND, "last"), stream=True)
    assert len(provider.requests) == 1


# --- records and what is learnt from them ----------------------------------------------------


async def test_a_record_says_what_was_sent_and_what_came_back() -> None:
    records: list[ModelCall] = []
    usage = Usage(input=50, output=7)
    model, _ = scripted(Reply("ok", usage=usage), on_model_call=records.append)
    declared = types.FunctionDeclaration(name="look", description="Looks.")
    model_request = request("hi", system_instruction="be brief", labels={"adk_agent_name": "root"})
    model_request.config.tools = [types.Tool(function_declarations=[declared])]
    token = current_caller.set(ModelCaller(("app", "user", "s"), "turn-1"))
    try:
        await ask(model, model_request)
    finally:
        current_caller.reset(token)
    [record] = records
    attempt = record.attempt
    assert (attempt.provider, attempt.model, attempt.usage) == ("scripted", "demo", usage)
    assert attempt.started <= (attempt.first_byte or 0.0) <= attempt.ended
    assert (record.session, record.turn, record.agent) == (("app", "user", "s"), "turn-1", "root")
    assert record.system
    assert record.system.text == "be brief"
    assert record.tools
    assert "Looks." in record.tools.text
    assert len(record.tools.hash) == 64
    assert record.estimated > record.sent == 1


async def test_a_hook_may_be_async_and_may_fail(caplog: pytest.LogCaptureFixture) -> None:
    received: list[int] = []

    async def hook(record: ModelCall) -> None:
        await asyncio.sleep(0)
        received.append(record.number)
        raise RuntimeError("broken hook")

    def plain(record: ModelCall) -> None:
        received.append(record.number)
        raise RuntimeError("broken hook")

    for one in (hook, plain):
        model, _ = scripted("ok", on_model_call=one)
        assert texts(await ask(model)) == ["ok"]
    assert received == [1, 1]
    assert caplog.text.count("Traceback") == 2


async def test_a_session_learns_how_its_model_counts() -> None:
    dear = Usage(input=3_000, output=1)
    model, provider = scripted(
        Reply("ok", usage=dear), "ok", "ok", "ok", token_budget=None, context_window=5_000
    )
    model_request = request(THOUSAND, "so", "last", max_output_tokens=500)

    async def sent(session: str) -> int:
        token = current_caller.set(ModelCaller(("app", "user", session)))
        try:
            await ask(model, model_request)
        finally:
            current_caller.reset(token)
        return len(provider.requests[-1].messages)

    longer = request(THOUSAND, THOUSAND, THOUSAND, "so", "last", max_output_tokens=500)
    assert await sent("one") == 3
    model_request = longer
    assert await sent("one") == 4  # twice as dear as estimated: one of the thousands goes
    assert await sent("two") == 5  # other sessions have not learnt that
    await ask(model, longer)
    assert len(provider.requests[-1].messages) == 5


async def test_without_a_caller_a_conversation_is_known_by_its_end() -> None:
    dear = Usage(input=3_000, output=1)
    model, provider = scripted(Reply("ok", usage=dear), token_budget=None, context_window=5_000)
    first, before = (THOUSAND, "so", "first"), (THOUSAND, "well")
    await ask(model, request(*first, max_output_tokens=500))
    longer = (*before, *before, *first, "ok", "next")
    await ask(model, request(*longer, max_output_tokens=500))
    # Twice as dear as estimated: one of the thousands goes.
    assert [m.content for m in provider.requests[-1].messages] == list(longer[1:])
    other = (*before, *before, THOUSAND, "so", "another", "ok", "next")
    await ask(model, request(*other, max_output_tokens=500))
    assert [m.content for m in provider.requests[-1].messages] == list(other)


async def test_many_sessions_do_not_fill_the_memory() -> None:
    model, _ = scripted()
    for number in range(1_100):
        token = current_caller.set(ModelCaller(("app", "user", str(number))))
        await ask(model)
        current_caller.reset(token)
    assert len(model._calibrations) == 1_024  # pyright: ignore[reportPrivateUsage]


def test_every_model_error_can_be_made_from_nothing() -> None:
    kinds: list[type[ModelError]] = [ModelError]
    for kind in kinds:
        kinds.extend(kind.__subclasses__())
        assert str(kind())
