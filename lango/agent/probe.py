"""One real turn with a model: does it stream, does it call a tool, does it use the result."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, Final

from lango.agent.agent import Agent
from lango.core.causes import cause_of
from lango.core.turns.events import Completed, Failed, MessageDelta, ToolFinished, TurnEvent
from lango.errors import LangoError
from lango.tools.function import tool

_INSTRUCTION: Final = "Call the tool you are asked to call, then say its result in a few words."
_REQUEST: Final = 'call add {"a": 2, "b": 3}'


@tool(idempotent=True)
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@dataclass(frozen=True, slots=True)
class Probe:
    """The result of a probe."""

    ok: bool
    message: str
    answers: bool = True  # False only if the turn failed


async def probe(model: Any) -> Probe:
    """Ask a model to call a tool, streaming; errors are in the result, not raised."""
    started = time.monotonic()
    first: float | None = None
    events: list[TurnEvent] = []
    async with Agent(model=model, name="probe", instruction=_INSTRUCTION, tools=[add]) as agent:
        async for event in agent.stream(_REQUEST):
            if first is None and isinstance(event, MessageDelta | ToolFinished):
                first = time.monotonic() - started
            events.append(event)
    return _judged(events, first or 0.0, time.monotonic() - started)


def _judged(events: list[TurnEvent], first: float, total: float) -> Probe:
    end = events[-1]
    if isinstance(end, Failed):
        return Probe(ok=False, message=_why(end.error), answers=False)
    results = [event for event in events if isinstance(event, ToolFinished)]
    if not results:
        return Probe(
            ok=False, message="it answers, but it did not call the tool it was asked to call"
        )
    if results[0].error is not None:
        return Probe(ok=False, message=f"it called the tool wrongly: {results[0].error}")
    streamed = any(isinstance(event, MessageDelta) for event in events)
    if not isinstance(end, Completed) or not streamed:
        return Probe(ok=False, message="it called the tool, but did not stream an answer after it")
    return Probe(
        ok=True, message=f"a streamed tool call in {total:.1f} s (first news at {first:.1f} s)"
    )


def _why(error: Exception) -> str:
    return str(error if isinstance(error, LangoError) else cause_of(error))
