"""Reviving is validating, for what we wrote ourselves."""

from typing import Any

import pytest
from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions, EventCompaction
from google.adk.tools.tool_confirmation import ToolConfirmation
from google.genai import types
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from lango.adk.sessions.fast_model import build, fast_model, revive
from lango.testing.events import model
from lango.testing.same import differences

BYTES = bytes(range(256))

EXAMPLES: list[BaseModel] = [
    types.Part(text="hello"),
    types.Part(text="hm", thought=True, thought_signature=BYTES),
    types.Part(inline_data=types.Blob(mime_type="image/png", data=BYTES, display_name="a")),
    types.Part(file_data=types.FileData(file_uri="gs://bucket/file", mime_type="text/csv")),
    types.Part(
        executable_code=types.ExecutableCode(code="print()", language=types.Language.PYTHON)
    ),
    types.Part(
        code_execution_result=types.CodeExecutionResult(
            outcome=types.Outcome.OUTCOME_OK, output="1\n"
        )
    ),
    types.FunctionCall(id="1", name="exec", args={"deep": [{"list": [1, 2.5, None, "x"]}]}),
    types.FunctionResponse(
        id="1",
        name="exec",
        response={"result": "ok"},
        parts=[
            types.FunctionResponsePart(
                inline_data=types.FunctionResponseBlob(mime_type="image/png", data=BYTES)
            )
        ],
    ),
    types.Content(role="user", parts=[types.Part(text="a"), types.Part(text="b")]),
    types.GenerateContentResponseUsageMetadata(
        prompt_token_count=3,
        prompt_tokens_details=[
            types.ModalityTokenCount(modality=types.MediaModality.IMAGE, token_count=2)
        ],
    ),
    types.GroundingMetadata(
        web_search_queries=["weather"],
        grounding_chunks=[types.GroundingChunk(web=types.GroundingChunkWeb(uri="https://x"))],
    ),
    types.Transcription(text="hello", finished=True),
    EventActions(
        state_delta={"a": 1},
        artifact_delta={"plot.png": 2},
        transfer_to_agent="helper",
        requested_tool_confirmations={"call-1": ToolConfirmation(hint="sure?", payload={"a": 1})},
        compaction=EventCompaction(
            start_timestamp=1.5,
            end_timestamp=2.5,
            compacted_content=types.Content(role="model", parts=[types.Part(text="so far")]),
        ),
    ),
    Event(
        author="root",
        invocation_id="turn-1",
        branch="root.helper",
        content=types.Content(role="model", parts=[types.Part(text="hi")]),
        long_running_tool_ids={"call-1", "call-2"},
        finish_reason=types.FinishReason.STOP,
        custom_metadata={"k": [1, {"n": None}]},
        partial=False,
        timestamp=1_760_000_000.123456,
    ),
]


def dumped(original: BaseModel) -> dict[str, Any]:
    return original.model_dump(mode="json", exclude_none=True, warnings=False)


@pytest.mark.parametrize("original", EXAMPLES, ids=lambda one: type(one).__name__)
def test_reviving_is_validating(original: BaseModel) -> None:
    data = dumped(original)
    revived = revive(type(original), data)
    assert differences(type(original).model_validate(data), revived) == []
    assert differences(original, revived) == []
    assert revived == original
    assert dumped(revived) == data


@pytest.mark.parametrize(
    "kind",
    [
        types.Part,
        types.FunctionCall,
        types.FunctionResponse,
        types.GroundingMetadata,
        types.CitationMetadata,
        types.LogprobsResult,
        types.GenerateContentResponseUsageMetadata,
    ],
)
@pytest.mark.filterwarnings("ignore:.* is not a valid:UserWarning")  # genai, of enums it knows not
def test_reviving_anything_of_a_kind(kind: type[BaseModel]) -> None:
    @settings(max_examples=50, suppress_health_check=[HealthCheck.too_slow])
    @given(model(kind))
    def check(original: BaseModel) -> None:
        try:
            data = dumped(original)
        except (ValueError, RecursionError):
            return  # what JSON cannot hold is normalised before it comes this far
        assert differences(kind.model_validate(data), revive(kind, data)) == []

    check()


def test_a_revived_model_is_a_model() -> None:
    revived = revive(types.Part, {"text": "hello"})
    assert revived.model_fields_set == {"text"}
    copy = revived.model_copy(update={"thought": True}, deep=True)
    assert (copy.text, copy.thought, revived.thought) == ("hello", True, None)
    assert types.Part.model_validate_json(copy.model_dump_json()) == copy


def test_defaults_are_not_shared() -> None:
    first, second = (
        revive(EventActions, {}, skip_validation=True),
        revive(EventActions, {}, skip_validation=True),
    )
    first.state_delta["a"] = 1
    assert second.state_delta == {}
    assert fast_model(EventActions).fresh().state_delta == {}


def test_an_empty_model_has_the_defaults_of_a_real_one() -> None:
    for kind in (types.Part, types.Content, types.FunctionCall, EventActions):
        assert differences(kind(), revive(kind, {}, skip_validation=True)) == []


def test_filling_in_some_fields() -> None:
    values: dict[str, Any] = {"partial": True}
    data = {
        "long_running_tool_ids": ["b", "a"],
        "finish_reason": "STOP",
        "branch": "root.helper",
        "usage_metadata": None,
    }
    fast_model(Event).fill(values, data)
    assert values == {
        "partial": True,
        "long_running_tool_ids": {"a", "b"},
        "finish_reason": types.FinishReason.STOP,
        "branch": "root.helper",
        "usage_metadata": None,
    }


@given(st.text(), st.sampled_from(["user", "model", "function"]))
def test_building_is_constructing(text: str, role: str) -> None:
    made = build(types.Content, role=role, parts=[build(types.Part, text=text)])
    assert made == types.Content(role=role, parts=[types.Part(text=text)])


@given(st.text(), st.booleans())
def test_a_factory_constructs(text: str, thought: bool) -> None:
    part = fast_model(types.Part).factory("text", thought=thought)(text)
    assert differences(types.Part(text=text, thought=thought), part) == []


def test_models_of_a_factory_share_no_defaults() -> None:
    make = fast_model(EventActions).factory("transfer_to_agent", escalate=True)
    first, second = make("a"), make("b")
    first.state_delta["a"] = 1
    first.model_fields_set.add("state_delta")
    assert (second.transfer_to_agent, second.state_delta) == ("b", {})
    assert second.model_fields_set == {"transfer_to_agent", "escalate"}
