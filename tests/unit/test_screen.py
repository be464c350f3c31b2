"""Turns on a terminal: several messages at once, each told once and whole."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from rich.console import Console

from lango.cli.output.screen import TextScreen
from lango.core.turns.events import (
    AgentChanged,
    Cancelled,
    Completed,
    Failed,
    MessageCompleted,
    MessageDelta,
    MessagePart,
    MessageReset,
    ToolFinished,
    ToolProgress,
    TurnEvent,
)
from lango.errors import TurnError


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


def test_the_command_for_a_failure_elsewhere_has_the_options_of_the_store() -> None:
    notes = io.StringIO()
    store_options = ("sqlite:///a.db", None, Path("other.yaml"))
    screen = TextScreen(notes=Console(file=notes, width=200), store_options=store_options)
    screen.show(Failed(TurnError(), error_id="err_1"))
    show = "lango turns show err_1 --url sqlite:///a.db --config other.yaml"
    assert f"`{show}` shows the cause." in notes.getvalue()


def test_messages_of_other_agents_than_the_speaker_are_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    notes = io.StringIO()
    monkeypatch.setattr("sys.stdout", io.StringIO())
    screen = TextScreen(notes=Console(file=notes))
    screen.speaker = "root"
    for event in (
        MessageCompleted("a", "root", "Hello"),
        MessageDelta("b", "One"),
        MessageDelta("c", "Two"),
        MessageCompleted("c", "reviewer", "Two"),
        MessageCompleted("b", "writer", "One"),
        AgentChanged("billing"),
        MessageCompleted("d", "billing", "Paid"),
        MessageCompleted("e", "root", "Bye"),
        Completed(),
    ):
        screen.show(event)
    assert notes.getvalue().split("\n") == [
        "— writer",
        "— reviewer",
        "billing continues",
        "— root",
        "",
    ]


_DUG = [
    ToolProgress("c", "dig", 1, 4, "sand"),
    ToolProgress("c", "dig", 2.5, 4),
    ToolProgress("c", "dig", 3),
    ToolFinished("c", "dig", {"found": "gold"}),
]


def test_progress_is_a_line_each_where_no_one_looks() -> None:
    notes = io.StringIO()
    screen = TextScreen(notes=Console(file=notes))
    for event in _DUG:
        screen.show(event)
    assert notes.getvalue().splitlines() == [
        "… dig: 1 of 4 · sand",
        "… dig: 2.5 of 4",
        "… dig: 3",
        '← dig: {"found": "gold"}',
    ]


def test_progress_at_a_terminal_is_one_line_that_changes() -> None:
    notes = io.StringIO()
    screen = TextScreen(notes=Console(file=notes, force_terminal=True, no_color=True))
    for event in _DUG:
        screen.show(event)
    lines = re.sub(r"\x1b\[[0-9;]*m", "", notes.getvalue()).split("\n")
    shown = [line.rpartition("\r\x1b[K")[2] for line in lines]
    assert shown == ['← dig: {"found": "gold"}', ""]
    assert "… dig: 2.5 of 4" in lines[0]


def noted(*events: TurnEvent, monkeypatch: pytest.MonkeyPatch) -> str:
    """What standard error gets."""
    monkeypatch.setattr("sys.stdout", io.StringIO())
    notes = io.StringIO()
    screen = TextScreen(notes=Console(file=notes, width=80))
    for event in events:
        screen.show(event)
    return notes.getvalue()


CODE = MessagePart("a", "root", 0, "code", "x = 1\nprint(x)\n", "python")


def test_code_and_its_output_are_notes(monkeypatch: pytest.MonkeyPatch) -> None:
    failed = MessagePart("b", "root", 0, "code_result", "no x", outcome="failed")
    assert noted(CODE, failed, monkeypatch=monkeypatch) == (
        "→ code (python)\n  x = 1\n  print(x)\n← output of the code (failed)\n  no x\n"
    )


def test_code_that_was_streamed_as_text_is_not_shown_again(monkeypatch: pytest.MonkeyPatch) -> None:
    streamed = MessageDelta("a", "```python\nx = 1\nprint(x)\n```")
    assert noted(streamed, CODE, MessageReset("a"), monkeypatch=monkeypatch) == ""
