"""How a run ended, by its events: a node that failed and was tried again has not ended it."""

from typing import Any

import pytest
from google.adk.events.event import Event, NodeInfo
from google.genai import types

from lango.adk.turn_events import LATER_TRY, TurnReader
from lango.core.turns.events import MessageCompleted, MessageDelta, MessagePart, MessageReset
from lango.turns.log.replay import name_of

NODE = "root@1/node@1"


def read(*events: Event) -> TurnReader:
    reader = TurnReader()
    for event in events:
        list(reader.read(event))
    return reader


def of_node(path: str = NODE, **fields: Any) -> Event:
    return Event(author="root", node_info=NodeInfo(path=path), **fields)


FAILED = of_node(error_code="ValueError", error_message="no")


@pytest.mark.parametrize(
    "later",
    [
        of_node(output="given"),
        of_node(output=0),
        of_node(route="on"),
        of_node(custom_metadata={LATER_TRY: 2}),
        of_node(content=types.ModelContent("said")),
    ],
)
def test_a_later_try_that_succeeds_takes_the_failure_back(later: Event) -> None:
    assert read(FAILED, later).stopped() is None


@pytest.mark.parametrize(
    "later",
    [
        of_node("root@1/other@1", output="given"),
        of_node(),
        of_node(state={"k": 1}),
        of_node(error_code="ValueError", error_message="no"),
    ],
)
def test_anything_else_does_not(later: Event) -> None:
    error = read(FAILED, later).stopped()
    assert str(error) == "no (ValueError)"


def test_an_output_without_a_place_takes_nothing_back() -> None:
    failed = Event(author="root", error_code="SAFETY", error_message="no")
    assert read(failed, Event(author="root", output="given")).stopped() is not None


def said(text: str, *, partial: bool = False, **fields: Any) -> Event:
    return Event(author="root", content=types.ModelContent(text), partial=partial, **fields)


def told(*events: Event) -> tuple[TurnReader, list[Any]]:
    reader = TurnReader()
    return reader, [each for event in events for each in reader.read(event)]


def test_a_whole_message_under_another_id_replaces_its_deltas() -> None:
    """As ADK's code executors have it."""
    reader, events = told(
        said("It is ", partial=True, id="delta"),
        said("4.", partial=True, id="delta"),
        Event(author="root", id="empty"),
        said("It is 4.", id="whole"),
    )
    assert events[-1] == MessageCompleted("delta", "root", "It is 4.", event="whole")
    assert [type(event) for event in events] == [MessageDelta, MessageDelta, MessageCompleted]
    assert reader.unfinished() == []


def test_a_message_of_another_agent_or_branch_replaces_nothing() -> None:
    reader, events = told(
        said("It", partial=True, id="delta", branch="a"),
        said("They", id="whole", branch="b"),
    )
    assert events[-1] == MessageCompleted("whole", "root", "They")
    assert [event.id for event in reader.unfinished()] == ["delta"]


def test_a_message_is_known_by_its_stored_event() -> None:
    completed = MessageCompleted("delta", "root", "It is 4.", event="whole")
    stored = MessageCompleted("whole", "root", "It is 4.")
    assert name_of(completed.type, completed.data()) == name_of(stored.type, stored.data())


CODE = types.Part(
    executable_code=types.ExecutableCode(code="print(4)", language=types.Language.PYTHON)
)
RAN = types.Part(
    code_execution_result=types.CodeExecutionResult(outcome=types.Outcome.OUTCOME_OK, output="4")
)


def with_parts(*parts: types.Part, **fields: Any) -> Event:
    return Event(author="root", content=types.Content(role="model", parts=[*parts]), **fields)


def test_code_and_its_output_come_after_the_text_of_their_message() -> None:
    """As Gemini's own code execution has it."""
    whole = with_parts(types.Part(text="It is"), CODE, RAN, types.Part(text=" 4."), id="whole")
    assert told(whole)[1] == [
        MessageCompleted("whole", "root", "It is 4."),
        MessagePart("whole", "root", 1, "code", "print(4)", "python"),
        MessagePart("whole", "root", 2, "code_result", "4", outcome="ok"),
    ]


def test_a_message_of_code_alone_replaces_the_text_that_was_streamed_of_it() -> None:
    streamed = said("```python", partial=True, id="delta")
    _, events = told(streamed, with_parts(CODE, id="whole"))
    assert events[1:] == [
        MessagePart("delta", "root", 0, "code", "print(4)", "python", event="whole"),
        MessageReset("delta"),
    ]
    _, [stored] = told(with_parts(CODE, id="whole"))
    assert name_of(events[1].type, events[1].data()) == name_of(stored.type, stored.data())
