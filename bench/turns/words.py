"""The cost of a durable turn beside ADK's own runner in memory, by the words of its answer."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import TYPE_CHECKING, Final

from google.adk.agents.run_config import RunConfig
from google.adk.runners import Runner
from google.adk.sessions.in_memory_session_service import InMemorySessionService
from google.genai import types

from bench.events import APP, USER
from bench.pg import own_database
from bench.report import Table, millis
from bench.rounds import Stopwatch, cpu, divide, estimate, interleave
from bench.targets import Finding, Result, Target
from bench.turns.apps import speaker
from bench.turns.worker_context import MESSAGE, BenchSettings, queue, worker_context

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping

    from bench.rounds import Sample
    from bench.turns.worker_context import WorkerContext

_BARE: Final = "ADK's runner in memory"
_DURABLE: Final = "durable"
_STREAMING: Final = RunConfig.model_validate({"streaming_mode": "sse"})


@dataclass(frozen=True, slots=True)
class Load:
    """A number of concurrent turns, each with an answer of some words."""

    words: int
    at_once: int
    limit: float  # of a durable turn, as a multiple of the bare one

    @property
    def target(self) -> Target:
        """The target for the client CPU of a durable turn."""
        load = f"{self.words} words, {self.at_once} at once"
        return Target(f"durable turn of {load}, client CPU, × ADK's in memory", self.limit)


LOADS: Final = tuple(
    Load(words, at_once, limit)
    for words, limit in ((10, 1.2), (30, 1.0), (300, 0.5))
    for at_once in (1, 20)
)


class _Bare:
    """ADK's runner with its own sessions in memory, and the same agent."""

    def __init__(self, words: int) -> None:
        self._sessions = InMemorySessionService()
        self._runner = Runner(app_name=APP, agent=speaker(words), session_service=self._sessions)
        self._made = 0

    async def run(self) -> None:
        """Run one turn in its own session."""
        self._made += 1
        session = f"bare-{self._made}"
        await self._sessions.create_session(app_name=APP, user_id=USER, session_id=session)
        message = types.UserContent(MESSAGE)
        events = self._runner.run_async(
            user_id=USER, session_id=session, new_message=message, run_config=_STREAMING
        )
        async for _ in events:
            pass


async def _durably(context: WorkerContext, sessions: Iterator[str]) -> None:
    turn = await context.submit(next(sessions))
    assert (await context.turns.wait(turn)).state == "completed"


def _rounder(run: Callable[[], Awaitable[None]], at_once: int) -> Callable[[], Awaitable[Sample]]:
    async def run_round() -> Sample:
        watch = Stopwatch(at_once)
        with watch:
            await asyncio.gather(*(run() for _ in range(at_once)))
        return watch.sample

    return run_round


async def measure(load: Load, rounds: int) -> Result:
    """Both ways, in the same rounds."""
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        settings = BenchSettings(await enter(own_database("_words")), f"{load.words} words")
        beside = await enter(queue(settings))
        context = await enter(worker_context(settings))
        await enter(context.worker)
        sessions = iter(await beside.sessions((rounds + 1) * load.at_once))
        await beside.settle()
        bare = _Bare(load.words)
        ways = {_BARE: bare.run, _DURABLE: partial(_durably, context, sessions)}
        samples = await interleave(
            {name: _rounder(run, load.at_once) for name, run in ways.items()}, rounds
        )
    return _result(load, rounds, samples)


def _result(load: Load, rounds: int, samples: Mapping[str, list[Sample]]) -> Result:
    table = Table(
        f"{load.at_once} turns at once of {load.words} words (median of {rounds} rounds)",
        ("turn", "client CPU ms", "× bare"),
    )
    for name, series in samples.items():
        ratio = estimate(divide(cpu(series), cpu(samples[_BARE])))
        table.add(name, millis(median(cpu(series))), ratio)
    figure = estimate(divide(cpu(samples[_DURABLE]), cpu(samples[_BARE])))
    return Result([table], [Finding(load.target, figure)])
