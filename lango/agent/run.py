"""One turn, with a second try for a model that passed it to an agent it made up."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Protocol

from lango.adk.runner import Said, TurnOptions
from lango.agent.collect import Collector
from lango.core.turns import ENDS, Failed, Retrying, TurnEvent
from lango.errors import AgentNotFoundError


class Turns(Protocol):
    """What runs a turn once: an AgentRunner."""

    def run(
        self, user_id: str, session_id: str, said: Said, options: TurnOptions | None = None
    ) -> AsyncGenerator[TurnEvent]:
        """One turn: Started, what happens, one end."""
        ...


def correction(name: str, valid: Sequence[str]) -> str:
    """What a model is told that named an agent which is not there."""
    return (
        f'[System: Agent "{name}" does not exist. Valid agents: {", ".join(valid)}. '
        "Please retry using one of the valid agent names listed above.]"
    )


async def run_turn(
    runner: Turns, user_id: str, session_id: str, said: Said, options: TurnOptions | None = None
) -> AsyncGenerator[TurnEvent]:
    """The events of a turn, run once more with a correction if it failed by an unknown agent.

    The second failure is the turn's, raised from the first. An agent that had nobody to pass the
    turn to is not corrected.
    """
    first: Failed | None = None
    async with aclosing(runner.run(user_id, session_id, said, options)) as events:
        async for event in events:
            if isinstance(event, Failed) and _is_correctable(event.error):
                first = event
            else:
                yield event
    if first is None or not isinstance(first.error, AgentNotFoundError):
        return
    yield Retrying(str(first.error))
    told = correction(first.error.name, first.error.valid)
    again = replace(options or TurnOptions(), invocation_id=None, attempt=2, go_on=True)
    async with aclosing(runner.run(user_id, session_id, told, again)) as events:
        async for event in events:
            yield _after(first, event)


def _is_correctable(error: Exception) -> bool:
    return isinstance(error, AgentNotFoundError) and bool(error.valid)


def _after(first: Failed, event: TurnEvent) -> TurnEvent:
    """An end of the second try also tells of the first: what it used, and why it failed."""
    if not isinstance(event, ENDS):
        return event
    if isinstance(event, Failed):
        error = event.error
        error.__context__, error.__cause__ = error.__cause__ or error.__context__, first.error
    return replace(event, usage=first.usage + event.usage)


async def run_and_collect(
    runner: Turns, user_id: str, session_id: str, said: Said, options: TurnOptions | None = None
) -> str:
    """The text of a turn, with the second try of `run_turn`."""
    return await _collected(run_turn(runner, user_id, session_id, said, options))


async def run_and_collect_once(
    runner: Turns, user_id: str, session_id: str, said: Said, options: TurnOptions | None = None
) -> str:
    """The text of a turn that is tried once."""
    return await _collected(runner.run(user_id, session_id, said, options))


async def _collected(turn: AsyncGenerator[TurnEvent]) -> str:
    collector = Collector()
    async with aclosing(turn) as events:
        async for event in events:
            collector.take(event)
    return collector.answer()
