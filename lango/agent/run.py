"""Runs one turn, retried once if the model transferred to an unknown agent."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Protocol

from lango.adk.runner import TurnOptions, UserInput
from lango.agent.collect import Collector
from lango.core.turns.events import ENDS, Failed, Retrying, TurnEvent
from lango.errors import AgentNotFoundError


class TurnRunner(Protocol):
    """Runs a turn once, such as an AgentRunner."""

    def run(
        self,
        user_id: str,
        session_id: str,
        user_input: UserInput,
        options: TurnOptions | None = None,
    ) -> AsyncGenerator[TurnEvent]:
        """Run one turn: Started, its events, one end."""
        ...


def correction(name: str, valid: Sequence[str]) -> str:
    """The message to a model that named an unknown agent."""
    return (
        f'[System: Agent "{name}" does not exist. Valid agents: {", ".join(valid)}. '
        "Please retry using one of the valid agent names listed above.]"
    )


async def run_turn(
    runner: TurnRunner,
    user_id: str,
    session_id: str,
    user_input: UserInput,
    options: TurnOptions | None = None,
) -> AsyncGenerator[TurnEvent]:
    """Yield a turn's events; retry once, with a correction, if it named an unknown agent.

    If the retry fails too, its error ends the turn, with the first as its cause. There is no
    retry if the agent had no valid target.
    """
    first: Failed | None = None
    async with aclosing(runner.run(user_id, session_id, user_input, options)) as events:
        async for event in events:
            if isinstance(event, Failed) and _is_correctable(event.error):
                first = event
            else:
                yield event
    if first is None or not isinstance(first.error, AgentNotFoundError):
        return
    yield Retrying(str(first.error))
    message = correction(first.error.name, first.error.valid)
    retry_options = replace(
        options or TurnOptions(), invocation_id=None, attempt=2, keep_agent=True
    )
    async with aclosing(runner.run(user_id, session_id, message, retry_options)) as events:
        async for event in events:
            yield _after(first, event)


def _is_correctable(error: Exception) -> bool:
    return isinstance(error, AgentNotFoundError) and bool(error.valid)


def _after(first: Failed, event: TurnEvent) -> TurnEvent:
    """Add the first try's usage, and its error as the cause, to the end of the second."""
    if not isinstance(event, ENDS):
        return event
    if isinstance(event, Failed):
        error = event.error
        error.__context__, error.__cause__ = error.__cause__ or error.__context__, first.error
    return replace(event, usage=first.usage + event.usage)


async def run_and_collect(
    runner: TurnRunner,
    user_id: str,
    session_id: str,
    user_input: UserInput,
    options: TurnOptions | None = None,
) -> str:
    """The text of a turn, retried as in `run_turn`."""
    return await _collected(run_turn(runner, user_id, session_id, user_input, options))


async def run_and_collect_once(
    runner: TurnRunner,
    user_id: str,
    session_id: str,
    user_input: UserInput,
    options: TurnOptions | None = None,
) -> str:
    """The text of a turn, without a retry."""
    return await _collected(runner.run(user_id, session_id, user_input, options))


async def _collected(turn: AsyncGenerator[TurnEvent]) -> str:
    collector = Collector()
    async with aclosing(turn) as events:
        async for event in events:
            collector.take(event)
    return collector.answer()
