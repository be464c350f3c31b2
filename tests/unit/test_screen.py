"""Turns on a terminal: several messages at once, each told once and whole."""

from __future__ import annotations

import io
from collections.abc import Sequence

import pytest
from rich.console import Console

from lango.cli.output.screen import TextScreen
from lango.core.turns.events import (
    Cancelled,
    Completed,
    MessageCompleted,
    MessageDelta,
    MessageReset,
    TurnEvent,
)


def shown(events: Sequence[TurnEvent], monkeypatch: pytest.MonkeyPatch) -> str:
    """What standard output gets."""
    out = io.StringIO()
    monkeypatch.setattr("sys.stdout", out)
    screen = TextScreen(notes=Console(file=io.StringIO()))
    for event in events:
        screen.show(event)
    return out.getvalue()


def test_messages_that_come_at_once_are_shown_one_after_the_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    events = [
        *(MessageDelta("a", "You "), MessageDelta("b", "They "), MessageDelta("a", "said")),
        *(MessageDelta("b", "heard"), MessageDelta("c", "lost"), MessageDelta("d", "We")),
        MessageCompleted("b", "two", "They heard"),
        MessageReset("c"),
        MessageCompleted("e", "three", "It"),
        MessageCompleted("a", "one", "You said"),
        MessageDelta("d", " know"),
        MessageCompleted("d", "four", "We know"),
        Completed(),
    ]
    assert shown(events, monkeypatch) == "You said\nThey heard\nWe know\nIt\n"


def test_what_was_begun_is_shown_when_the_turn_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    events = [MessageDelta("a", "You"), MessageDelta("b", "They"), Cancelled()]
    assert shown(events, monkeypatch) == "You\nThey\n"
