"""The reports of a tool: coalesced, bounded, masked, and none once the call is over."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from types import SimpleNamespace
from typing import Any, cast

import pytest
from google.adk.tools.tool_context import ToolContext

import lango
from lango.adk.credentials.masking import Secrets
from lango.adk.durable import progress
from lango.adk.durable.progress import TurnProgress
from lango.core.turns.events import ToolProgress, TurnEvent
from lango.errors import Fenced

NEVER = 3600.0


def context(call: str = "c", session: str = "s") -> ToolContext:
    named = SimpleNamespace(function_call_id=call, session=SimpleNamespace(id=session))
    return cast(ToolContext, named)


class Turn:
    """A turn whose calls report, and what it has published."""

    def __init__(self, *secrets: str) -> None:
        self.published: list[Any] = []
        self.is_lost = False
        hidden = Secrets()
        hidden.add(secrets)
        self.progress = TurnProgress(self._publish, hidden)

    def _publish(self, event: TurnEvent) -> None:
        if self.is_lost:
            raise Fenced
        self.published.append(event)

    @property
    def currents(self) -> list[float]:
        return [event.current for event in self.published]


@pytest.fixture(autouse=True)
def _rarely(monkeypatch: pytest.MonkeyPatch) -> None:
    """Within a test, only the first report of a call is due."""
    monkeypatch.setattr(progress, "INTERVAL", NEVER)


async def _pass() -> None:
    """Let what is scheduled run."""
    for _ in range(3):
        await asyncio.sleep(0)


async def test_of_many_reports_the_first_and_the_last_are_published() -> None:
    turn = Turn()
    turn.progress.begin("dig", context())
    lango.report_progress(0, 1000, "begins")
    await _pass()
    for number in range(1, 1001):
        lango.report_progress(number, 1000)
        await asyncio.sleep(0)
    turn.progress.finish(context())
    assert turn.published == [
        ToolProgress("c", "dig", 0, 1000, "begins"),
        ToolProgress("c", "dig", 1000, 1000),
    ]
    lango.report_progress(7)
    await _pass()
    assert turn.currents == [0, 1000]


async def test_a_report_that_waits_is_published_when_it_is_due(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(progress, "INTERVAL", 0.01)
    turn = Turn()
    turn.progress.begin("dig", context())
    for number in range(5):
        lango.report_progress(number)
        await _pass()
    async with asyncio.timeout(30):
        while turn.currents[-1:] != [4]:  # noqa: ASYNC110 - it comes by a timer
            await asyncio.sleep(0.005)
    assert len(turn.currents) < 5


async def test_a_thread_may_report() -> None:
    turn = Turn()
    turn.progress.begin("dig", context())
    running = contextvars.copy_context()
    thread = threading.Thread(target=running.run, args=(lango.report_progress, 1, 2, "deep"))
    thread.start()
    await asyncio.to_thread(thread.join)
    await _pass()
    assert turn.published == [ToolProgress("c", "dig", 1, 2, "deep")]


async def test_a_tool_of_an_inner_agent_reports_for_the_outer_call() -> None:
    turn = Turn()
    turn.progress.begin("ask_helper", context("outer"))
    turn.progress.begin("dig", context("outer", session="inner"))
    lango.report_progress(1)
    turn.progress.finish(context("outer", session="inner"))
    lango.report_progress(2)
    turn.progress.finish(context("outer"))
    assert turn.published == [ToolProgress("outer", "ask_helper", 2)]


@pytest.mark.parametrize("over", ["result", "end of the run"])
async def test_nothing_is_published_after_the_result(over: str) -> None:
    turn = Turn()
    turn.progress.begin("dig", context())
    lango.report_progress(1)
    if over == "result":
        turn.progress.end("c")
    else:
        turn.progress.close()
    await _pass()
    lango.report_progress(2)
    await _pass()
    assert turn.published == []


async def test_a_lost_turn_fails_no_tool() -> None:
    turn = Turn()
    turn.progress.begin("dig", context())
    turn.is_lost = True
    lango.report_progress(1)
    await _pass()
    turn.is_lost = False
    lango.report_progress(2)
    turn.progress.finish(context())
    assert turn.published == []


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ((1.0, 2.0, ""), (1, 2, None)),
        ((0.25, float("inf"), "a\0b"), (0.25, None, "a\ufffdb")),
        ((3, "many", None), (3, None, None)),
        ((10**400, 1, ""), None),
        ((float("nan"), 1, ""), None),
        ((None, 1, ""), None),
        ((2, 3, "the key is sesame-1234 now"), (2, 3, "the key is ********** now")),
        ((2, 3, "x" * 9_000), (2, 3, "x" * progress.MAX_TEXT)),
    ],
)
async def test_what_an_event_holds(given: Any, kept: Any) -> None:
    turn = Turn("sesame-1234")
    turn.progress.begin("dig", context())
    lango.report_progress(*given)
    turn.progress.finish(context())
    found = [(event.current, event.total, event.text) for event in turn.published]
    assert found == ([] if kept is None else [kept])


async def test_outside_a_turn_it_does_nothing() -> None:
    lango.report_progress(1, 2, "alone")
    unread = TurnProgress(None, Secrets())
    unread.begin("dig", context())
    lango.report_progress(1)
    unread.finish(context())
