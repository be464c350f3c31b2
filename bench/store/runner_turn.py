"""Client CPU of a whole ADK Runner turn with a model that answers at once."""

from __future__ import annotations

import importlib.util
import sys
from statistics import median
from typing import TYPE_CHECKING, Any, Final, cast

from google.adk.agents.llm_agent import LlmAgent
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_response import LlmResponse
from google.adk.runners import Runner
from google.genai import types

from bench.events import (
    AGENT,
    APP,
    APPENDED_BYTES,
    USER,
    invocation_id,
    model_event,
    text,
    usage,
    user_event,
)
from bench.report import Table
from bench.rounds import Stopwatch, cpu, divide, estimate, interleave
from bench.store.contenders import Fill, names
from bench.store.free import FreeSessionService
from bench.targets import Finding, Result, Target

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence

    from google.adk.events.event import Event
    from google.adk.models.llm_request import LlmRequest
    from google.adk.sessions.base_session_service import BaseSessionService

    from bench.rounds import Sample
    from bench.store.adk import Adk
    from bench.store.ours import Lango

TURN: Final = Target("Runner turn at 100 events, client CPU", 1.35)

_WINDOWS: Final = (0, 100)
_TURNS: Final = 8
_SLOW_TURNS: Final = 2  # a round of ADK's own service
_FREE: Final = "store that costs nothing"


class Instant(BaseLlm):
    """A model that answers at once."""

    async def generate_content_async(
        self,
        llm_request: LlmRequest,  # noqa: ARG002
        stream: bool = False,  # noqa: ARG002
    ) -> AsyncGenerator[LlmResponse, None]:
        """One whole answer with usage."""
        yield LlmResponse(
            content=types.Content(role="model", parts=[types.Part(text=text(APPENDED_BYTES))]),
            model_version="instant-1",
            finish_reason=types.FinishReason.STOP,
            usage_metadata=usage(),
        )


def spare_failing_import() -> None:
    """Let ADK's import of an agent kind that is not installed fail at once.

    It is tried again in every turn, at 1 to 17 ms: counted, it would hide what a store costs.
    """
    if importlib.util.find_spec("a2a") is None:
        sys.modules.setdefault("google.adk.agents.remote_a2a_agent", cast("Any", None))


def _rounder(
    service: BaseSessionService, sessions: Iterator[str], turns: int = _TURNS
) -> Callable[[], Awaitable[Sample]]:
    """Rounds of turns, each in a session of its own, so that no window grows."""
    agent = LlmAgent(name=AGENT, model=Instant(model="instant"))
    runner = Runner(app_name=APP, agent=agent, session_service=service)
    message = types.Content(role="user", parts=[types.Part(text=text(APPENDED_BYTES))])

    async def run() -> Sample:
        batch = [next(sessions) for _ in range(turns)]
        watch = Stopwatch(turns)
        with watch:
            for session in batch:
                async for _ in runner.run_async(
                    user_id=USER, session_id=session, new_message=message
                ):
                    pass
        return watch.sample

    return run


def _history(length: int) -> list[Event]:
    events: list[Event] = []
    while len(events) < length:
        invocation = invocation_id()
        content = text(APPENDED_BYTES)
        events += [user_event(content, invocation), model_event(content, invocation)]
    return events


def _free_sessions(service: FreeSessionService, length: int) -> Iterator[str]:
    events = _history(length)
    while True:
        yield service.put(list(events), APP, USER)


async def _rounders(
    contenders: Sequence[Adk | Lango], rounds: int
) -> dict[tuple[str, int], Callable[[], Awaitable[Sample]]]:
    rounders: dict[tuple[str, int], Callable[[], Awaitable[Sample]]] = {}
    free = FreeSessionService()
    for length in _WINDOWS:
        rounders[_FREE, length] = _rounder(free, _free_sessions(free, length))
        for contender in contenders:
            fill = Fill(length, APPENDED_BYTES) if length else None
            turns = _TURNS if contender is contenders[-1] else _SLOW_TURNS
            sessions = await contender.sessions((rounds + 1) * turns, fill)
            rounders[contender.name, length] = _rounder(contender.service, iter(sessions), turns)
    return rounders


async def cpu_of_turn(contenders: Sequence[Adk | Lango], rounds: int) -> Result:
    """A turn on each store beside the same turn on a store that costs nothing."""
    spare_failing_import()
    ours = contenders[-1]
    rounders = await _rounders(contenders, rounds)
    slow = [key for key in rounders if key[0] in names(contenders[:-1])]
    runs = await interleave(rounders, rounds, slow)
    samples = {key: cpu(series) for key, series in runs.items()}
    table = Table(
        f"A whole Runner turn, client CPU ms (median of {rounds} rounds)",
        ("store", *(f"{n} events{mark}" for n in _WINDOWS for mark in ("", ", × free"))),
    )
    ratios = {
        key: estimate(divide(series, samples[_FREE, key[1]])) for key, series in samples.items()
    }
    for name in (_FREE, *names(contenders)):
        cells: list[object] = []
        for length in _WINDOWS:
            cells += [f"{median(samples[name, length]) * 1e3:.2f}", ratios[name, length]]
        table.add(name, *cells)
    return Result([table], [Finding(TURN, ratios[ours.name, _WINDOWS[-1]])])
