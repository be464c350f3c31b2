"""Every call with one result right behind it, whatever the history was."""

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lango.core.messages.messages import Media, Message, ToolCall
from lango.core.messages.pairing import INTERRUPTED, pair_calls, with_call_ids
from tests.support.conversations import problems, random_conversation

USER = Message("user", "hi")


def call(*ids: str, name: str = "look") -> Message:
    return Message("assistant", "", tuple(ToolCall(one, name, input="{}") for one in ids))


def result(call_id: str, output: str = '{"n":1}', name: str = "look") -> Message:
    return Message("tool", output, (ToolCall(call_id, name, output=output),))


def outputs(messages: list[Message]) -> list[tuple[str, str]]:
    return [(one.id, one.output) for m in messages if m.is_tool for one in m.tool_calls]


def call_ids(messages: list[Message]) -> list[str]:
    return [one.id for m in messages if m.is_assistant for one in m.tool_calls]


def test_a_valid_conversation_is_left_alone() -> None:
    talk = [USER, call("a", "b"), result("a"), result("b"), Message("assistant", "done")]
    assert pair_calls(talk) == talk


def test_an_unanswered_call_is_interrupted() -> None:
    paired = pair_calls([USER, call("a", "b"), result("b"), USER])
    assert outputs(paired) == [("a", INTERRUPTED), ("b", '{"n":1}')]
    assert [message.role for message in paired] == ["user", "assistant", "tool", "tool", "user"]


def test_a_result_without_a_call_goes() -> None:
    assert pair_calls([result("x"), USER, result("y"), call("a"), result("a")]) == [
        USER,
        call("a"),
        result("a"),
    ]


def test_a_result_comes_right_behind_its_call() -> None:
    paired = pair_calls([call("a"), USER, Message("assistant", "wait"), result("a")])
    assert paired == [call("a"), result("a"), USER, Message("assistant", "wait")]


def test_an_id_used_again_is_renamed_in_call_and_result() -> None:
    paired = pair_calls([call("a"), result("a", "1"), USER, call("a"), result("a", "2")])
    assert call_ids(paired) == ["a", "a_2"]
    assert outputs(paired) == [("a", "1"), ("a_2", "2")]


def test_a_new_id_is_never_one_that_is_taken() -> None:
    paired = pair_calls([call("a", "a_2"), result("a"), result("a_2"), call("a"), result("a")])
    assert call_ids(paired) == ["a", "a_2", "a_3"]


def test_parallel_calls_that_share_an_id_keep_their_results() -> None:
    paired = pair_calls([call("a", "a"), result("a", "1"), result("a", "2")])
    assert outputs(paired) == [("a", "1"), ("a_2", "2")]


def test_the_last_report_of_a_call_is_its_result() -> None:
    paired = pair_calls([call("a"), result("a", "pending"), USER, result("a", "final")])
    assert outputs(paired) == [("a", "final")]
    assert paired[-1] == USER


def test_without_ids_results_are_paired_by_name_and_position() -> None:
    talk = [
        Message("assistant", "", tuple(ToolCall("", name) for name in ("look", "find", "look"))),
        result("", "find 1", "find"),
        result("", "look 1"),
        result("", "look 2"),
    ]
    assert outputs(pair_calls(talk)) == [
        ("call_look", "look 1"),
        ("call_find", "find 1"),
        ("call_look_2", "look 2"),
    ]


def test_an_interrupted_call_does_not_take_the_next_ones_result() -> None:
    paired = pair_calls([call(""), USER, call(""), result("", "mine")])
    assert outputs(paired) == [("call_look", INTERRUPTED), ("call_look_2", "mine")]


def test_a_result_that_lost_its_id_finds_a_call_that_kept_it() -> None:
    assert outputs(pair_calls([call("a"), result("", "1")])) == [("a", "1")]


def test_a_result_with_an_id_answers_no_call_but_its_own() -> None:
    assert outputs(pair_calls([call(""), result("a", "1")])) == [("call_look", INTERRUPTED)]


def test_a_row_of_an_older_system_answers_by_position() -> None:
    talk = [call("a", "b"), Message("function", "one"), Message("tool", "two")]
    assert outputs(pair_calls(talk)) == [("a", "one"), ("b", "two")]


def test_results_in_one_message_are_split_and_images_kept() -> None:
    image = Media("image/png", b"1")
    both = Message("tool", "", (ToolCall("b", "look", output="2"), ToolCall("a", "", output="1")))
    assert outputs(pair_calls([call("a", "b"), both])) == [("a", "1"), ("b", "2")]
    [_, alone] = pair_calls([call("a"), replace(result("a"), media=(image,))])
    assert alone.media == (image,)


@pytest.mark.parametrize("output", ["", "{}"])
def test_a_result_is_never_empty(output: str) -> None:
    assert outputs(pair_calls([call("a"), result("a", output)])) == [("a", "{}")]


def test_only_agents_call() -> None:
    assert pair_calls([replace(USER, tool_calls=(ToolCall("a", "look"),))]) == [USER]


def test_ids_are_given_without_changing_anything_else() -> None:
    talk = [call("", "x"), result("", "1"), result("", "2"), result("", "3"), USER]
    named = with_call_ids(talk)
    assert call_ids(named) == ["call_look", "x"]
    assert outputs(named) == [("call_look", "1"), ("x", "2"), ("call_look", "3")]
    assert len(named) == len(talk)


conversations = st.integers(0, 2**32).map(lambda seed: random_conversation(Random(seed)))


@given(conversations)
def test_whatever_it_was_it_is_valid(history: list[Message]) -> None:
    assert problems(pair_calls(history)) == []


@given(conversations)
def test_doing_it_twice_changes_nothing(history: list[Message]) -> None:
    once = pair_calls(history)
    assert pair_calls(once) == once


@given(conversations)
def test_nothing_but_results_is_lost_and_nothing_but_interruptions_added(
    history: list[Message],
) -> None:
    paired = pair_calls(history)
    text = [(m.role, m.content, len(m.tool_calls)) for m in history if not m.is_tool]
    assert [(m.role, m.content, len(m.tool_calls)) for m in paired if not m.is_tool] == text
    before = [one.output for m in history if m.is_tool for one in m.tool_calls]
    assert {output for _, output in outputs(paired)} <= {*before, INTERRUPTED}


@given(conversations)
def test_a_result_with_an_id_of_its_own_keeps_its_call(history: list[Message]) -> None:
    """Results are never given to another call than the one they name."""
    wanted = {
        one.output: one.id
        for m in history
        if m.is_tool
        for one in m.tool_calls
        if one.id.startswith("id-")
    }
    for call_id, output in outputs(pair_calls(history)):
        if output in wanted and len(output) > 60:
            assert call_id == wanted[output]


@given(conversations)
def test_every_id_is_there_after_naming(history: list[Message]) -> None:
    named = with_call_ids(history)
    assert all(one.id for m in named for one in m.tool_calls)
    assert pair_calls(named) == pair_calls(with_call_ids(named))
