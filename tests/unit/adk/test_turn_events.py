"""How a run ended, by its events: a node that failed and was tried again has not ended it."""

from typing import Any

import pytest
from google.adk.events.event import Event, NodeInfo
from google.genai import types

from lango.adk.turn_events import LATER_TRY, TurnReader

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
