"""What an event may lose on its way through the store, one named function at a time."""

import math
from typing import Any

import pytest
from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions
from google.genai import types

from lango.adk.sessions.encode import entry_of
from lango.adk.sessions.normalise import (
    MAX_OUTPUT,
    OUTPUT_HEAD,
    check_ids,
    large_outputs,
    normalise,
    output_name,
    storable_event,
    with_call_ids,
    with_outputs_moved,
    with_response_role,
    without_temp_state,
)
from lango.adk.sessions.parts import MAX_INLINE
from lango.core.values import TOO_DEEP, json_text, json_value
from lango.errors import InvalidIdError
from lango.testing.same import differences
from lango.testing.values import nested


def event(*parts: types.Part, role: str | None = "model", **fields: Any) -> Event:
    content = types.Content(role=role, parts=[*parts])
    given: dict[str, Any] = {"id": "event-1", "author": "root", "invocation_id": "turn-1"}
    return Event(content=content, **{**given, **fields})


def said(text: str) -> types.Part:
    return types.Part(text=text)


def call(call_id: str | None, name: str = "look", args: dict[str, Any] | None = None) -> types.Part:
    return types.Part(function_call=types.FunctionCall(id=call_id, name=name, args=args))


def result(call_id: str | None, output: Any, name: str = "look") -> types.Part:
    answer = types.FunctionResponse(id=call_id, name=name, response=output)
    return types.Part(function_response=answer)


ORDINARY = [
    event(said("hello"), role="user", author="user"),
    event(said("let me see"), call("adk-1", args={"number": 1})),
    event(types.Part(inline_data=types.Blob(mime_type="image/png", data=b"\x00" * 100_000))),
    event(said("hm"), actions=EventActions(state_delta={"a": 1, "user:b": "2", "app:c": None})),
    Event(id="event-1", author="root", actions=EventActions(end_of_agent=True)),
    Event(id="event-1", author="root", error_code="ValueError", error_message="no"),
]


@pytest.mark.parametrize("ordinary", ORDINARY)
def test_an_ordinary_event_is_the_same_object(ordinary: Event) -> None:
    assert normalise(ordinary) is ordinary


def test_the_event_at_hand_is_left_as_it_was() -> None:
    hostile = event(
        said("nul \x00"),
        call(None),
        result("", {"x": "y" * MAX_OUTPUT}),
        role="user",
        actions=EventActions(state_delta={"temp:a": 1, "b": math.nan}),
    )
    before = hostile.model_copy(deep=True)
    once = normalise(hostile)
    assert differences(before.content, hostile.content) == []
    assert list(hostile.actions.state_delta) == ["temp:a", "b"]
    assert differences(once, normalise(once)) == []


# --- ids -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("refused", "kind"),
    [
        (event(said("x"), id="nul \x00"), "event id"),
        (event(said("x"), id="x" * 257), "event id"),
        (event(said("x"), invocation_id="\ud800"), "invocation id"),
        (event(call("new\nline")), "call id"),
        (event(result("x" * 10_000, {})), "call id"),
    ],
    ids=range(5),
)
def test_ids_that_cannot_be_kept_are_refused(refused: Event, kind: str) -> None:
    with pytest.raises(InvalidIdError, match=f"The {kind}"):
        check_ids(refused)
    with pytest.raises(InvalidIdError):
        normalise(refused)


def test_only_the_invocation_and_a_call_may_have_no_id() -> None:
    check_ids(event(call(None), result("", {}), invocation_id=""))
    nameless = event(said("x"))
    nameless.id = ""
    with pytest.raises(InvalidIdError, match="The event id is empty"):
        check_ids(nameless)


def _ids(one: Event) -> list[str | None]:
    calls, results = one.get_function_calls(), one.get_function_responses()
    return [*(made.id for made in calls), *(made.id for made in results)]


def test_calls_without_ids_get_one_each() -> None:
    given = event(call("adk-1"), call(""), said("and"), call(None), call(None, "book"))
    assert _ids(with_call_ids(given)) == ["adk-1", "call_look", "call_look_2", "call_book"]
    assert _ids(given) == ["adk-1", "", None, None]


def test_results_without_ids_are_numbered_as_their_calls_are() -> None:
    answers = event(result(None, {}), result("", {}), result(None, {}, "book"))
    assert _ids(with_call_ids(answers)) == ["call_look", "call_look_2", "call_book"]


def test_calls_with_ids_are_left_alone() -> None:
    given = event(call("adk-1"), result("adk-2", {}))
    assert with_call_ids(given) is given
    assert with_call_ids(ORDINARY[0]) is ORDINARY[0]


# --- state -----------------------------------------------------------------------------------


def test_temporary_state_is_not_stored() -> None:
    delta = {"a": 1, "temp:b": 2, "user:c": 3, "app:d": 4, "temperature": 5, "temp:": 6}
    given = event(said("x"), actions=EventActions(state_delta=delta, transfer_to_agent="helper"))
    kept = without_temp_state(given)
    assert kept.actions.state_delta == {"a": 1, "user:c": 3, "app:d": 4, "temperature": 5}
    assert kept.actions.transfer_to_agent == "helper"
    assert given.actions.state_delta == delta


def test_state_without_temporary_keys_is_left_alone() -> None:
    assert without_temp_state(ORDINARY[3]) is ORDINARY[3]


# --- what no database keeps ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        ("nul \x00", "nul \ufffd"),
        ("\ud800", "\ufffd"),
        (math.nan, None),
        ([1, math.inf], [1, None]),
        (b"\x00\xff", "AP8="),
        ({1: "one"}, {"1": "one"}),
        ((1, 2), [1, 2]),
    ],
    ids=range(7),
)
def test_values_are_made_storable_wherever_they_are(value: Any, stored: Any) -> None:
    given = event(
        call("1", args={"v": value}),
        result("2", {"v": value}),
        actions=EventActions(state_delta={"v": value}),
        custom_metadata={"v": value},
    )
    clean = storable_event(given)
    [called], [answered] = clean.get_function_calls(), clean.get_function_responses()
    payloads = (called.args, answered.response, clean.actions.state_delta, clean.custom_metadata)
    for payload in payloads:
        assert differences({"v": stored}, payload) == []


def test_texts_are_made_storable_wherever_they_are() -> None:
    given = event(said("a\x00"), author="b\x00", branch="c\ud800", error_message="d\x00")
    clean = storable_event(given)
    assert clean.content
    assert clean.content.parts == [said("a\ufffd")]
    assert (clean.author, clean.branch, clean.error_message) == ("b\ufffd", "c\ufffd", "d\ufffd")


def test_bytes_stay_bytes() -> None:
    signed = types.Part(text="hm", thought=True, thought_signature=b"\x00\xff")
    given = event(signed)
    assert storable_event(given) is given


@pytest.mark.parametrize("depth", [63, 64, 300])
def test_deep_nesting_is_cut(depth: int) -> None:
    clean = storable_event(event(result("1", {"deep": nested(depth)})))
    [answer] = clean.get_function_responses()
    assert (TOO_DEEP in json_text(answer.response)) == (depth > 63)


def test_a_number_that_is_none_becomes_none_or_zero() -> None:
    clean = storable_event(event(said("x"), avg_logprobs=math.nan, timestamp=math.inf))
    assert (clean.avg_logprobs, clean.timestamp) == (None, 0.0)


# --- large data ------------------------------------------------------------------------------


def _output(size: int) -> dict[str, str]:
    """An output whose JSON has this many bytes."""
    return {"r": "x" * (size - len('{"r":""}'))}


def test_an_output_up_to_the_limit_stays() -> None:
    given = event(result("1", _output(MAX_OUTPUT)))
    assert large_outputs(given) == {}
    assert with_outputs_moved(given) is given


def test_a_larger_one_leaves_its_head_and_where_it_is() -> None:
    given = event(result("1", {"small": True}), result("2", _output(MAX_OUTPUT + 1)))
    moved = with_outputs_moved(given)
    small, large = moved.get_function_responses()
    assert small.response == {"small": True}
    assert (large.id, large.name) == ("2", "look")
    text = json_text(_output(MAX_OUTPUT + 1))
    assert large.response == {
        "truncated": True,
        "artifact": output_name(given, given.get_function_responses()[1]),
        "bytes": MAX_OUTPUT + 1,
        "head": text[:OUTPUT_HEAD],
    }
    assert with_outputs_moved(moved) is moved


def test_the_limit_is_of_bytes_not_of_characters() -> None:
    given = event(result("1", {"r": "é" * (MAX_OUTPUT // 2)}))
    assert list(large_outputs(given)) == [0]


def test_large_outputs_are_counted_past_calls_and_texts() -> None:
    given = event(said("x"), call("0"), result("1", {}), result("2", _output(2 * MAX_OUTPUT)))
    responses = with_outputs_moved(given).get_function_responses()
    assert [bool((one.response or {}).get("truncated")) for one in responses] == [False, True]


def test_the_whole_output_is_saved_with_the_event() -> None:
    output = _output(MAX_OUTPUT + 1)
    given = event(result("1", output))
    _, entry = entry_of(given)
    assert entry
    [blob] = entry.blobs
    assert blob.name == output_name(given, given.get_function_responses()[0])
    assert isinstance(blob.data, bytes)
    assert json_value(blob.data.decode()) == output
    assert len(entry.tool_calls or "") < 2 * OUTPUT_HEAD


@pytest.mark.parametrize("size", [MAX_INLINE, MAX_INLINE + 1])
def test_inline_data_over_the_limit_leaves_the_row(size: int) -> None:
    """And the event says nothing of it: the bytes are brought back when it is loaded."""
    data = b"\xff" * size
    given = event(types.Part(inline_data=types.Blob(mime_type="image/png", data=data)))
    clean, entry = entry_of(given)
    assert entry
    assert clean is given
    moved = size > MAX_INLINE
    assert [blob.data for blob in entry.blobs] == ([data] if moved else [])
    assert (len(entry.event or "") < 500) == moved


# --- roles -----------------------------------------------------------------------------------


@pytest.mark.parametrize("role", ["user", "model", "tool", None])
def test_content_with_results_has_the_role_function(role: str | None) -> None:
    changed = with_response_role(event(said("x"), result("1", {}), role=role))
    assert changed.content
    assert changed.content.role == "function"


@pytest.mark.parametrize("role", ["user", "model", None, "odd"])
def test_other_content_keeps_its_role(role: str | None) -> None:
    given = event(said("x"), call("1"), role=role)
    assert with_response_role(given) is given
