"""What reaches a model, and what comes back from it."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.genai import types

from lango.adk.models.adapter import ModelAdapter
from lango.adk.models.convert import convert_messages
from lango.core.messages.messages import Message, ToolCall
from lango.core.messages.streams import Done, StreamEvent, StreamEventError, TextDelta, ToolCallDone
from lango.errors import ModelUnavailableError
from lango.providers.base import ModelRequest
from lango.testing import ScriptedProvider

HELLO = "Hello world"
DELTAS = (TextDelta("Hello "), TextDelta("world"))


class Emits:
    """A provider that emits just these events."""

    name = "emits"

    def __init__(self, *events: StreamEvent) -> None:
        self._events = events

    async def stream(self, request: ModelRequest) -> AsyncIterator[StreamEvent]:
        del request
        for event in self._events:
            yield event


def asking(*contents: types.Content, **config: Any) -> LlmRequest:
    sent_contents = contents or (types.Content(role="user", parts=[types.Part(text="hi")]),)
    return LlmRequest(contents=list(sent_contents), config=types.GenerateContentConfig(**config))


async def responses(*events: StreamEvent, stream: bool) -> list[LlmResponse]:
    model = ModelAdapter(Emits(*events), "demo")
    return [one async for one in model.generate_content_async(asking(), stream=stream)]


async def forwarded(request: LlmRequest) -> list[Message]:
    """What the provider is given."""
    provider = ScriptedProvider()
    model = ModelAdapter(provider, "demo")
    assert [one async for one in model.generate_content_async(request)]
    [given] = provider.requests
    return list(given.messages)


def parts(response: LlmResponse) -> list[types.Part]:
    assert response.content
    return response.content.parts or []


# --- the system instruction ------------------------------------------------------------------


@pytest.mark.parametrize(
    "instruction", ["Be brief.", types.Content(parts=[types.Part(text="Be brief.")])]
)
@pytest.mark.scenario("SystemInstruction present in request")
async def test_system_instruction_present_in_request(instruction: Any) -> None:
    messages = await forwarded(asking(system_instruction=instruction))
    assert messages == [Message("system", "Be brief."), Message("user", "hi")]


@pytest.mark.parametrize(
    "config", [None, types.GenerateContentConfig(), types.GenerateContentConfig(temperature=0)]
)
@pytest.mark.scenario("SystemInstruction absent")
async def test_system_instruction_absent(config: types.GenerateContentConfig | None) -> None:
    request = asking()
    request.config = config  # pyright: ignore[reportAttributeAccessIssue]  # ADK's callers may
    assert await forwarded(request) == [Message("user", "hi")]


@pytest.mark.parametrize(
    "instruction",
    [
        types.Content(parts=[types.Part(text="Be brief."), types.Part(text="Be kind.")]),
        [types.Part(text="Be brief."), types.Part(text="Be kind.")],
        ["Be brief.", "Be kind."],
    ],
)
@pytest.mark.scenario("Multi-part SystemInstruction")
async def test_multi_part_system_instruction(instruction: Any) -> None:
    first, *rest = await forwarded(asking(system_instruction=instruction))
    assert first == Message("system", "Be brief.\nBe kind.")
    assert [message.role for message in rest] == ["user"]


# --- streaming -------------------------------------------------------------------------------


@pytest.mark.scenario("Non-streaming mode accumulates complete response")
async def test_non_streaming_mode_accumulates_complete_response() -> None:
    [response] = await responses(*DELTAS, Done("stop"), stream=False)
    assert (response.partial, response.turn_complete) == (False, True)
    assert parts(response)[0].text == HELLO


@pytest.mark.scenario("Non-streaming mode accumulates tool calls")
async def test_non_streaming_mode_accumulates_tool_calls() -> None:
    call = ToolCall("call-1", "search", input='{"q":"cats"}')
    [response] = await responses(ToolCallDone(call), Done("tool_calls"), stream=False)
    assert (response.partial, response.turn_complete) == (False, True)
    expected = types.FunctionCall(id="call-1", name="search", args={"q": "cats"})
    assert [part.function_call for part in parts(response)] == [expected]


@pytest.mark.scenario("Streaming mode yields partial events and complete final")
async def test_streaming_mode_yields_partial_events_and_complete_final() -> None:
    *partials, final = await responses(*DELTAS, Done("stop"), stream=True)
    assert [parts(one)[0].text for one in partials] == ["Hello ", "world"]
    assert all(one.partial for one in partials)
    assert (final.partial, final.turn_complete) == (False, True)
    assert parts(final)[0].text == HELLO


@pytest.mark.parametrize("stream", [True, False], ids=["streaming", "whole"])
@pytest.mark.scenario("Provider error propagates correctly")
async def test_provider_error_propagates_correctly(stream: bool) -> None:
    error = ModelUnavailableError("The provider is on fire.")
    events = (DELTAS[0], StreamEventError(error), DELTAS[1], Done("stop"))
    model = ModelAdapter(Emits(*events), "demo")
    answer = model.generate_content_async(asking(), stream=stream)
    if stream:
        assert (await anext(answer)).partial
    with pytest.raises(ModelUnavailableError) as caught:
        await anext(answer)
    assert caught.value is error
    assert error.partial_text == "Hello "
    with pytest.raises(StopAsyncIteration):
        await anext(answer)


# --- calls keep their ids --------------------------------------------------------------------


@pytest.mark.scenario("FunctionCall with original ID in convertMessages")
async def test_function_call_with_original_id_in_convert_messages() -> None:
    call = types.FunctionCall(id="adk-uuid-123", name="exec", args={"cmd": "ls"})
    content = types.Content(role="model", parts=[types.Part(function_call=call)])
    [converted] = convert_messages([content])
    assert converted.tool_calls == (ToolCall("adk-uuid-123", "exec", input='{"cmd":"ls"}'),)
    sent = await forwarded(asking(content))
    assert sent[0].tool_calls[0].id == "adk-uuid-123"


@pytest.mark.parametrize("missing", [None, ""])
def test_a_call_without_an_id_gets_one_from_its_name(missing: str | None) -> None:
    call = types.FunctionCall(id=missing, name="search", args={})
    [converted] = convert_messages(
        [types.Content(role="model", parts=[types.Part(function_call=call)])]
    )
    assert [one.id for one in converted.tool_calls] == ["call_search"]
