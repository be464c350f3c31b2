"""A provider's events as ADK's responses."""

import pytest
from google.adk.models.llm_response import LlmResponse
from google.genai import types

from lango.adk.models.direct_deltas import AnswerDeltas
from lango.adk.models.reasoning import reasoning_of
from lango.adk.models.responses import ReceivedAnswer, usable_id, usage_metadata
from lango.core.messages.messages import Reasoning, ToolCall
from lango.core.messages.streams import (
    Done,
    FinishReason,
    ReasoningDone,
    StreamEvent,
    StreamEventError,
    TextDelta,
    ThoughtDelta,
    ToolCallDone,
    Usage,
)
from lango.errors import BadStreamError, RateLimitedError
from lango.testing.same import differences

STOP = Done("stop")


def answer(
    *events: StreamEvent, taken: set[str] | None = None
) -> tuple[list[LlmResponse], ReceivedAnswer]:
    answer = ReceivedAnswer("scripted", "demo", taken or set())
    deltas = AnswerDeltas(None)
    for event in events:
        answer.take(event)
    return [partial for event in events if (partial := deltas.partial(event))], answer


def final(*events: StreamEvent) -> LlmResponse:
    return answer(*events)[1].final()


def parts(response: LlmResponse) -> list[types.Part]:
    assert response.content
    assert response.content.role == "model"
    return response.content.parts or []


@pytest.mark.parametrize(
    ("delta", "part"),
    [
        (TextDelta("hi"), types.Part(text="hi")),
        (ThoughtDelta("hm"), types.Part(text="hm", thought=True)),
    ],
)
def test_a_partial_response_is_as_adk_would_validate_it(
    delta: StreamEvent, part: types.Part
) -> None:
    [partial], _ = answer(delta)
    content = types.Content(role="model", parts=[part])
    assert differences(LlmResponse(content=content, partial=True), partial) == []
    assert partial.model_dump() == LlmResponse.model_validate(partial.model_dump()).model_dump()


def test_a_tool_call_is_in_the_final_response_only() -> None:
    partials, whole = answer(TextDelta("a"), ToolCallDone(ToolCall("x", "look", '{"n":1}')), STOP)
    assert len(partials) == 1
    text, call = parts(whole.final())
    assert text.text == "a"
    assert call.function_call == types.FunctionCall(id="x", name="look", args={"n": 1})


def test_thoughts_come_first_and_are_not_repeated() -> None:
    done = ReasoningDone(Reasoning("hm, well", "scripted", "demo", "sealed"))
    partials, whole = answer(
        ThoughtDelta("hm, "), ThoughtDelta("well"), done, TextDelta("so"), STOP
    )
    assert [parts(partial)[0].thought for partial in partials] == [True, True, None]
    thought, text = parts(whole.final())
    assert reasoning_of(thought) == done.reasoning
    assert text == types.Part(text="so")


def test_thoughts_without_data_are_kept_too() -> None:
    thought, _ = parts(final(ThoughtDelta("h"), ThoughtDelta("m"), TextDelta("so"), STOP))
    assert reasoning_of(thought) == Reasoning("hm", "scripted", "demo")


def test_data_without_thoughts_does_not_swallow_them() -> None:
    sealed = ReasoningDone(Reasoning(opaque="sealed"))
    pieces = [reasoning_of(part) for part in parts(final(ThoughtDelta("hm"), sealed, STOP))]
    assert pieces == [
        Reasoning("hm", "scripted", "demo"),
        Reasoning("", "scripted", "demo", "sealed"),
    ]


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("stop", "STOP"),
        ("tool_calls", "STOP"),
        ("length", "MAX_TOKENS"),
        ("content_filter", "SAFETY"),
        ("other", "OTHER"),
    ],
)
def test_finish_reasons(reason: FinishReason, expected: str) -> None:
    response = final(TextDelta("a"), Done(reason, model="demo-2"))
    assert response.finish_reason == types.FinishReason(expected)
    assert response.error_code is None
    assert response.model_version == "demo-2"


def test_silence_is_no_answer() -> None:
    silent = final(Done("content_filter"))
    assert (parts(silent), silent.error_code) == ([], "SAFETY")
    assert final(STOP).error_code is None  # ADK marks that one itself


def test_usage() -> None:
    counted = usage_metadata(Usage(input=100, output=30, cached=40, reasoning=10))
    assert counted == types.GenerateContentResponseUsageMetadata(
        prompt_token_count=100,
        cached_content_token_count=40,
        candidates_token_count=20,
        thoughts_token_count=10,
        total_token_count=130,
    )
    assert usage_metadata(None) is None


def test_a_stream_without_its_end_mark_is_broken() -> None:
    with pytest.raises(BadStreamError) as caught:
        final(TextDelta("half an "), TextDelta("ans"))
    error = caught.value
    assert (error.partial_text, error.provider, error.model) == ("half an ans", "scripted", "demo")


def test_the_error_of_a_stream_is_raised_as_it_is() -> None:
    error = RateLimitedError("slow down", retry_after=3.0)
    with pytest.raises(RateLimitedError) as caught:
        answer(TextDelta("a"), StreamEventError(error))
    assert caught.value is error


def test_an_error_gets_its_provider_model_and_partial_text() -> None:
    error = RateLimitedError("slow down")
    _, half = answer(TextDelta("half"))
    half.explain(error)
    assert (error.provider, error.model, error.partial_text) == ("scripted", "demo", "half")
    half.explain(ValueError("none of ours"))


@pytest.mark.parametrize("arguments", ["[1]", "1", '{"a":', "[" * 3_000, "null"])
def test_arguments_that_are_no_object_are_never_run(arguments: str) -> None:
    with pytest.raises(BadStreamError, match="look"):
        answer(ToolCallDone(ToolCall("a", "look", arguments)))


def test_a_call_without_a_name_is_never_run() -> None:
    with pytest.raises(BadStreamError, match="without naming"):
        answer(ToolCallDone(ToolCall("a", "", "{}")))


@pytest.mark.parametrize("bad", ["", "adk-1", "taken", "x" * 257, "a\nb", "\ud800"])
def test_an_id_that_will_not_do_is_replaced(bad: str) -> None:
    new = usable_id(bad, {"taken"})
    assert new.startswith("call_")
    assert usable_id(bad, {"taken"}) != new
    assert usable_id(new) == new


def test_calls_of_one_answer_never_share_an_id() -> None:
    same = ToolCallDone(ToolCall("a", "look"))
    calls = [part.function_call for part in parts(final(same, same, same, STOP))]
    ids = [call.id for call in calls if call]
    assert ids[0] == "a"
    assert len(set(ids)) == 3
