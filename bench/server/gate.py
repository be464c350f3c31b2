"""An agent whose model holds turns until a command opens the gate, and measures its process.

Commands are turns, too: a benchmark controls and inspects an unmodified `lango serve` with them.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Final

from google.adk.agents.llm_agent import LlmAgent

from bench.turns.apps import NO_LIMITS
from bench.turns.process import StallWatch
from lango.adk.models.adapter import ModelAdapter
from lango.core.messages.streams import Done, TextDelta, Usage

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from lango.core.messages.streams import StreamEvent
    from lango.providers.base import ModelRequest

WAIT: Final = "wait"
OPEN: Final = "open"  # answers all waiting turns at the same moment
OPEN_ONE_BY_ONE: Final = "open one by one"
RESET: Final = "reset"
FIGURES: Final = "figures"
ANSWERS_EVERY: Final = 0.001
"""Seconds between answers that are sent one by one."""


class Gate:
    """Answers waiting turns once a command opens the gate, and all others at once with figures."""

    name = "gate"

    def __init__(self) -> None:
        self._open = asyncio.Event()
        self._watch = StallWatch()
        self._waiting = 0
        self._every = 0.0

    async def stream(self, request: ModelRequest) -> AsyncIterator[StreamEvent]:
        """One answer."""
        message = request.messages[-1].content
        if message == WAIT:
            self._waiting += 1
            position = self._waiting
            await self._open.wait()
            await asyncio.sleep(position * self._every)
        elif message in (OPEN, OPEN_ONE_BY_ONE):
            self._every = ANSWERS_EVERY if message == OPEN_ONE_BY_ONE else 0.0
            self._open.set()
        elif message == RESET:
            self._watch.worst = 0.0
        figures = {"waiting": self._waiting, "worst_stall": self._watch.worst}
        yield TextDelta(json.dumps(figures))
        yield Done("stop", Usage(1, 1))


def make() -> LlmAgent:
    """Make the agent, within the event loop that it watches."""
    return LlmAgent(name="gate", model=ModelAdapter(Gate(), "gate", policy=NO_LIMITS))
