"""The text of a turn, from its events."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lango.agent.collect import Collector
from lango.core.turns.events import (
    AgentChanged,
    Approval,
    ApprovalRequired,
    Cancelled,
    Completed,
    Failed,
    InputRequired,
    MessageCompleted,
    MessageDelta,
    MessageReset,
    ReasoningDelta,
    Retrying,
    Started,
    ToolStarted,
    TurnEvent,
)
from lango.errors import (
    AgentNotFoundError,
    ApprovalNeededError,
    ModelUnavailableError,
    TurnCancelledError,
)


def collected(*events: TurnEvent) -> Collector:
    collector = Collector()
    for event in events:
        collector.take(event)
    return collector


def whole(text: str, author: str = "root", message: str = "m") -> MessageCompleted:
    return MessageCompleted(message, author, text)


TOOL = ToolStarted("c", "look", {})


@pytest.mark.parametrize(
    ("events", "text"),
    [
        ([], ""),
        ([whole("Hello")], "Hello"),
        ([MessageDelta("m", "Hel"), MessageDelta("m", "lo"), whole("Hello")], "Hello"),
        ([MessageDelta("m", "Hello"), whole("something else")], "Hello"),
        ([MessageDelta("m", "Hello")], "Hello"),
        ([MessageDelta("m", "Hello"), MessageReset("m")], ""),
        ([ReasoningDelta("m", "hm"), whole("Hello")], "Hello"),
        ([whole("Hel"), whole("lo")], "Hello"),
        ([whole("Hel"), whole("lo"), whole("Hello")], "Hello"),
        ([whole("ha"), whole("ha")], "haha"),
        ([whole("one", "a"), whole("two", "b")], "one\n\ntwo"),
        ([whole("one"), TOOL, whole("two")], "one\n\ntwo"),
        ([whole("one"), AgentChanged("b"), whole("two")], "one\n\ntwo"),
        (
            [
                MessageDelta("m", "one"),
                whole("one"),
                MessageDelta("n", "two"),
                whole("two", message="n"),
            ],
            "one\n\ntwo",
        ),
        ([whole("one"), Retrying("no such agent"), Started(2), whole("two")], "two"),
    ],
)
def test_each_response_is_collected_once(events: list[TurnEvent], text: str) -> None:
    assert collected(*events).text == text
    assert collected(*events, Completed()).answer() == text


@given(st.lists(st.text(min_size=1), min_size=1))
def test_deltas_and_their_message_say_the_same(deltas: list[str]) -> None:
    events: list[TurnEvent] = [MessageDelta("m", text) for text in deltas]
    assert collected(*events, whole("".join(deltas)), Completed()).answer() == "".join(deltas)


def test_two_messages_at_once_are_kept_apart() -> None:
    events = [MessageDelta("m", "a"), MessageDelta("n", "b"), MessageDelta("m", "c")]
    assert collected(*events, whole("bd", message="n"), whole("ac")).text == "b\n\nac"


def test_an_error_is_raised_with_what_was_said() -> None:
    error = AgentNotFoundError("ghost", ["helper"])
    with pytest.raises(AgentNotFoundError) as caught:
        collected(whole("Well."), Failed(error)).answer()
    assert caught.value is error
    assert error.partial_text == "Well."


@pytest.mark.parametrize(
    ("events", "text"),
    [
        ([MessageDelta("m", "one two")], "one two"),
        ([whole("Well."), TOOL, MessageDelta("m", "one two")], "Well.\n\none two"),
        ([whole("Well."), TOOL], "Well.\n\none two"),
        ([], "one two"),
    ],
)
def test_what_only_the_error_knows_is_kept_too(events: list[TurnEvent], text: str) -> None:
    error = ModelUnavailableError(partial_text="one two")
    with pytest.raises(ModelUnavailableError):
        collected(*events, Failed(error)).answer()
    assert error.partial_text == text


def test_an_error_of_other_code_is_raised_as_it_is() -> None:
    with pytest.raises(LookupError):
        collected(whole("Well."), Failed(LookupError())).answer()


def test_a_cancelled_turn_has_no_answer() -> None:
    with pytest.raises(TurnCancelledError) as caught:
        collected(MessageDelta("m", "one"), Cancelled("one")).answer()
    assert caught.value.partial_text == "one"


def test_a_waiting_turn_says_what_it_waits_for() -> None:
    approval = Approval("id", "call", "pay", {})
    with pytest.raises(ApprovalNeededError) as caught:
        collected(whole("Well."), ApprovalRequired(approval), InputRequired(("id",))).answer()
    assert caught.value.approvals == (approval,)
    assert caught.value.partial_text == "Well."


def test_what_is_said_while_a_result_is_pending_is_an_answer() -> None:
    assert collected(TOOL, whole("I filed it."), InputRequired(("call",))).answer() == "I filed it."
    with pytest.raises(ApprovalNeededError):
        collected(TOOL, InputRequired(("call",))).answer()
