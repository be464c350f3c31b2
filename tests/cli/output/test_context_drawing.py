"""The drawing of a context, line by line."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from lango.cli.output.context import drawn
from lango.core.messages.streams import Usage
from lango.insight.context import (
    ContextAttempt,
    ContextCut,
    ContextPreview,
    ContextSection,
    ContextView,
    SessionContext,
)

NOON = datetime(2026, 11, 15, 12, tzinfo=UTC)


@pytest.fixture(autouse=True)
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal of the usual width."""
    monkeypatch.setenv("COLUMNS", "80")


def attempt(number: int = 1, **facts: Any) -> ContextAttempt:
    known: dict[str, Any] = {
        "provider": "openai",
        "model": "gpt",
        "started": NOON,
        "first_byte": NOON + timedelta(seconds=0.5),
        "ended": NOON + timedelta(seconds=2),
        "outcome": "completed",
        "error": "",
        "request_id": "r",
        "estimated": 160,
        "usage": None,
        "cost": None,
    }
    return ContextAttempt(number=number, **(known | facts))


def section(number: int | None, tokens: int | None, **facts: Any) -> ContextSection:
    known: dict[str, Any] = {"kind": "history", "role": "user", "text": "hello"}
    return ContextSection(number=number, tokens=tokens, characters=5, **(known | facts))


def call(*sections: ContextSection, **facts: Any) -> ContextView:
    known: dict[str, Any] = {
        "call": "mc_1",
        "turn": "turn_1",
        "agent": "root",
        "attempt": attempt(),
        "attempts": (attempt(),),
        "budget": 100,
        "messages_known": "exact",
        "messages_sent": 3,
        "rest": 0,
        "cut": (),
        "shortened": (),
    }
    return ContextView(sections=sections, **(known | facts))


def lines(view: ContextView) -> list[str]:
    return list(drawn(SessionContext(view)))


def test_the_heading() -> None:
    failed = attempt(outcome="failed", error="RateLimitedError")
    done = attempt(2, usage=Usage(150, 20, cached=40), cost=0.0125)
    system = section(None, 60, kind="system")
    drawn_lines = lines(call(system, attempt=done, attempts=(failed, done)))
    assert drawn_lines[:6] == [
        "mc_1 to openai:gpt by root, attempt 2",
        "  turn    turn_1",
        "  time    2026-11-15 12:00:00 UTC, 2.0 s, first word after 0.5 s; completed",
        "  before  attempt 1, openai:gpt: failed (RateLimitedError)",
        "  tokens  160 estimated, 150 reported (40 cached), 20 answered; $0.012500",
        "  budget  100 for messages, as the model counts; they are estimated at 100",
    ]


def test_the_bars() -> None:
    drawn_lines = lines(
        call(
            section(None, 80, kind="tools", tools=("add", "pay")),
            section(9, 40),
            section(10, 0, role="assistant", author="helper", retold=True),
            section(11, 5, kind="turn", text="a\nb \x1b[31m" + "c" * 200),
            section(12, None, kind="turn", role="tool", tools=("add",), shortened=True),
            cut=(ContextCut(1, 7, 5, 200, "window", counted=True),),
            rest=10,
            shortened=("c1",),
        )
    )
    assert drawn_lines[drawn_lines.index("") + 1 :] == [
        "       tools                    80  ████████████████  add, pay",
        "  1-7  left out                200  ░░░░░░░░░░░░░░░░  5 messages: over the model's "
        "window · where they begin is counted, not recorded",
        "    9  user                     40  ████████          hello",
        "   10  assistant (helper)                             retold as a user's words …",
        "       this turn:",
        "   11  user                      5  █                 a b �[31mcccccccccccccccc…",
        "   12  tool                      ?                    shortened · from add · he…",
        "       the rest                 10  ██                not itemised: shortened o…",
    ]


def test_a_summary() -> None:
    cut = ContextCut(1, 4, 4, 50, "summarised")
    summary = section(5, 20, kind="summary", role="summary", replaces=(1, 4))
    drawn_lines = lines(call(summary, section(6, 10, kind="turn"), cut=(cut,)))
    assert [" ".join(line.split()) for line in drawn_lines[-4:]] == [
        "1-4 left out 50 ░░░░░░░░░░░░░░░░ 4 messages: replaced by the summary",
        "5 summary 20 ████████████████ replaces 1-4 · hello",
        "this turn:",
        "6 user 10 ████████ hello",
    ]
    assert lines(call(kind="summary"))[0] == "mc_1 to openai:gpt by root for a summary"


@pytest.mark.parametrize(
    ("known", "note"),
    [
        ("ends", "  Only the oldest and the newest message are certain: 3 messages were sent."),
        ("unknown", "  Which of the stored messages were sent is not recorded; there were 3."),
    ],
)
def test_what_is_not_known_is_said(known: str, note: str) -> None:
    drawn_lines = lines(call(messages_known=known, budget=None))
    assert note in drawn_lines
    assert "  budget  not recorded" in drawn_lines
    assert "  tokens  160 estimated, the provider reported none" in drawn_lines


def test_a_cut_without_numbers() -> None:
    drawn_lines = lines(call(cut=(ContextCut(None, None, 1, None, "refused"),)))
    assert " ".join(drawn_lines[-1].split()) == "? left out ? 1 message: refused as too long"


def test_a_preview() -> None:
    cut = ContextCut(1, 2, 2, 50, "budget")
    seen = ContextPreview(90, 80, (section(3, 40), section(4, 40)), (cut,))
    drawn_lines = list(drawn(SessionContext(None, seen)))
    assert drawn_lines == [
        "No model has been called in this session.",
        "",
        "Preview of the history that the next call would get; budget: 90 for messages",
        "  1-2  left out       50  ░░░░░░░░░░        2 messages: over the token budget",
        "  3-4  sent           80  ████████████████  2 messages",
    ]


def test_a_preview_of_what_cannot_be_sent() -> None:
    drawn_lines = list(drawn(SessionContext(None, ContextPreview(9, 0, (), (), "Too long."))))
    assert drawn_lines[-1] == "  There would be no call: Too long."


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        ("started", "; under way"),
        ("cut_off", ", 2.0 s, first word after 0.5 s; cut off with its worker"),
    ],
)
def test_a_call_without_an_end(outcome: str, expected: str) -> None:
    made = attempt(outcome=outcome)
    assert f"  time    2026-11-15 12:00:00 UTC{expected}" in lines(
        call(attempt=made, attempts=(made,))
    )
