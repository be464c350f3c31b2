"""Hypothesis strategy for the events that a Runner creates in ordinary use."""

from __future__ import annotations

from typing import Any, Final

from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions, EventCompaction
from google.adk.tools.tool_confirmation import ToolConfirmation
from google.genai import types
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from lango.testing.values import instances, plain_json, weighted, words

STATE_KEYS: Final = ("topic", "count", "a.b", "123", "app:theme", "user:name", "temp:scratch")


def ordinary_events() -> SearchStrategy[Event]:
    """Events as a Runner creates them, with text that any database keeps."""
    return weighted(
        (3, _message("user", "user")),
        (4, _answered()),
        (3, _called()),
        (3, _responded()),
        (1, _failed()),
        (2, _controlled()),
    )


def _ordinary(**fields: SearchStrategy[Any]) -> SearchStrategy[Event]:
    common: dict[str, SearchStrategy[Any]] = {
        "id": st.uuids().map(str),
        "invocation_id": st.uuids().map(lambda number: f"e-{number}"),
        "author": st.sampled_from(["agent", "helper"]),
        "timestamp": st.floats(1.7e9, 1.8e9),
        "branch": st.sampled_from([None, "agent", "agent.helper"]),
    }
    return instances(Event, **{**common, **fields})


def _content(role: str, parts: SearchStrategy[list[types.Part]]) -> SearchStrategy[types.Content]:
    return instances(types.Content, role=st.just(role), parts=parts)


def _message(author: str, role: str) -> SearchStrategy[Event]:
    parts = st.lists(instances(types.Part, text=words().filter(bool)), min_size=1, max_size=2)
    return _ordinary(author=st.just(author), content=_content(role, parts))


def _answered() -> SearchStrategy[Event]:
    text = instances(types.Part, text=words())
    thought = instances(
        types.Part, text=words(), thought=st.just(True), thought_signature=st.binary(max_size=20)
    )
    parts = st.one_of(st.tuples(text).map(list), st.tuples(thought, text).map(list))
    counts = st.integers(0, 100_000)
    usage = instances(
        types.GenerateContentResponseUsageMetadata,
        prompt_token_count=counts,
        candidates_token_count=counts,
        total_token_count=counts,
    )
    return _ordinary(
        content=_content("model", parts),
        usage_metadata=st.none() | usage,
        finish_reason=st.just(types.FinishReason.STOP),
        model_version=st.just("gemini-2.5-flash"),
        avg_logprobs=st.none() | st.floats(-5, 0),
        actions=_ordinary_actions(),
    )


def _ordinary_actions() -> SearchStrategy[EventActions]:
    keys = st.sampled_from([key for key in STATE_KEYS if not key.startswith("temp:")])
    deltas = st.dictionaries(keys, plain_json(), max_size=2)
    artifacts = st.dictionaries(st.sampled_from(["plot.png", "user:cv.pdf"]), st.integers(0, 9))
    return instances(EventActions, state_delta=deltas, artifact_delta=artifacts)


def _called() -> SearchStrategy[Event]:
    calls = instances(
        types.FunctionCall,
        id=st.uuids().map(lambda number: f"adk-{number}"),
        name=st.sampled_from(["search", "book"]),
        args=st.dictionaries(words(), plain_json(), max_size=3),
    )
    parts = st.lists(instances(types.Part, function_call=calls), min_size=1, max_size=3)

    def marked(content: types.Content) -> SearchStrategy[Event]:
        ids = {part.function_call.id for part in content.parts or [] if part.function_call}
        return _ordinary(
            content=st.just(content), long_running_tool_ids=st.sampled_from([None, set(), ids])
        )

    return _content("model", parts).flatmap(marked)


def _responded() -> SearchStrategy[Event]:
    responses = instances(
        types.FunctionResponse,
        id=st.uuids().map(lambda number: f"adk-{number}"),
        name=st.sampled_from(["search", "book"]),
        response=st.dictionaries(words(), plain_json(), max_size=3),
    )
    parts = st.lists(instances(types.Part, function_response=responses), min_size=1, max_size=3)
    return _ordinary(content=_content("user", parts), actions=_ordinary_actions())


def _failed() -> SearchStrategy[Event]:
    return _ordinary(error_code=st.just("ValueError"), error_message=words())


def _controlled() -> SearchStrategy[Event]:
    summaries = instances(
        EventCompaction,
        start_timestamp=st.floats(1.7e9, 1.75e9),
        end_timestamp=st.floats(1.75e9, 1.8e9),
        compacted_content=_content(
            "model", st.lists(instances(types.Part, text=words()), min_size=1, max_size=1)
        ),
    )
    confirmations = st.dictionaries(
        st.sampled_from(["adk-1", "adk-2"]),
        instances(ToolConfirmation, hint=words(), payload=plain_json()),
        min_size=1,
    )
    actions = st.one_of(
        instances(EventActions, end_of_agent=st.just(True)),
        instances(EventActions, agent_state=st.just({"current_sub_agent": "helper"})),
        instances(EventActions, transfer_to_agent=st.just("helper")),
        instances(EventActions, route=st.sampled_from(["left", 1, True, ["left", 2]])),
        instances(EventActions, requested_tool_confirmations=confirmations),
        instances(EventActions, compaction=summaries),
    )
    return _ordinary(actions=actions)
