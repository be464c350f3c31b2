"""The measured apps, and the notes they take while they run."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol

from google.adk.agents.llm_agent import LlmAgent

from bench.events import AGENT, APP
from lango.adk.durable.run import DurableAgent
from lango.adk.models.adapter import ModelAdapter
from lango.adk.plugins import plugins as default_plugins
from lango.adk.runner import AgentRunner
from lango.adk.sessions.service import SessionServiceAdapter
from lango.adk.tools.adapter import as_adk_tools
from lango.core.messages.messages import ToolCall
from lango.core.turns.events import Completed, MessageDelta
from lango.providers.policy.retry import Policy
from lango.providers.policy.timeouts import Timeouts
from lango.providers.scripted import Reply, ScriptedProvider
from lango.tools.function import tool

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence

    from google.adk.plugins.base_plugin import BasePlugin

    from lango.core.messages.streams import StreamEvent
    from lango.core.turns.events import Publish, TurnEvent
    from lango.providers.base import ModelRequest
    from lango.store.sessions.store import SqlSessionStore
    from lango.store.turns.rows import Claim
    from lango.turns.attempt import LoadedApp

DELTAS: Final = 10
"""Words of an answer."""
SHORT: Final = 150
LONG: Final = 15_000
"""Words of the answers whose memory is measured."""
ANSWER_TAKES: Final = 0.5
"""Seconds that the model with a usual answer takes for it."""
_DELTA_EVERY: Final = 0.1  # seconds: as often as a model's words, gathered for a reader, come
_WORD_EVERY: Final = 0.015  # seconds: as fast as a common model's words come
_EFFECT_EVERY: Final = 0.001
_ANSWERS_SLOWER: Final = 2
NO_LIMITS: Final = Policy(
    tries=1, max_concurrent_requests=10_000, timeouts=Timeouts(300.0, 300.0, 300.0)
)
"""For models that keep thousands of turns waiting, which a normal policy would end."""


@dataclass(slots=True)
class Notes:
    """What happened in one process. Times are those of the machine's monotonic clock."""

    gate: asyncio.Event = field(default_factory=asyncio.Event)
    """Open: models answer, streams flow."""
    calls: int = 0
    first_call: float | None = None  # since the gate was shut
    last_call: float = 0.0
    last_effect: float = 0.0

    def shut(self) -> None:
        """Make all later calls wait."""
        self.gate.clear()
        self.first_call = None

    def called(self, _: ModelRequest | None = None) -> str:
        """Record a model call; return its answer."""
        self.calls += 1
        self.last_call = time.monotonic()
        self.first_call = self.first_call or self.last_call
        return " ".join(["word"] * DELTAS)


class Maker(Protocol):
    """Makes an app on a store."""

    def __call__(self, store: SqlSessionStore, notes: Notes) -> LoadedApp: ...


class Nothing:
    """A turn without an agent that ends at once: its cost is the cost of the queue."""

    fingerprint = "nothing"
    remembers = False
    embedder = None

    def __init__(self, store: SqlSessionStore, notes: Notes) -> None:
        del store
        self._notes = notes

    async def run(
        self, claim: Claim, *, abort: asyncio.Event, publish: Publish
    ) -> AsyncGenerator[TurnEvent]:
        """End."""
        del claim, abort, publish
        self._notes.called()
        yield Completed()


class Streaming:
    """A turn without an agent that streams words while the gate is open, until it is stopped.

    Each delta is the time at which it was published.
    """

    fingerprint = "streaming"
    remembers = False
    embedder = None

    def __init__(self, store: SqlSessionStore, notes: Notes) -> None:
        del store
        self._gate = notes.gate

    async def run(
        self, claim: Claim, *, abort: asyncio.Event, publish: Publish
    ) -> AsyncGenerator[TurnEvent]:
        """Stream."""
        del publish
        # All begin together: without this they would stay in step.
        await asyncio.sleep(claim.turn.session_pk % 100 / 100 * _DELTA_EVERY)
        while not abort.is_set():
            await self._gate.wait()
            yield MessageDelta("m", f"{time.time()!r} ")
            await asyncio.sleep(_DELTA_EVERY)
        yield Completed()


class _Gated(ScriptedProvider):
    """A model that answers once the gate is open.

    In the order of its calls and `slower` times as far apart, as models do that all take equally
    long; or, at 0, to all of them at one moment.
    """

    def __init__(self, notes: Notes, slower: int) -> None:
        super().__init__(rule=lambda _: "done")
        self._notes = notes
        self._slower = slower

    async def stream(self, request: ModelRequest) -> AsyncIterator[StreamEvent]:
        self._notes.called(request)
        later = self._notes.last_call - (self._notes.first_call or 0.0)
        await self._notes.gate.wait()
        await asyncio.sleep(self._slower * later)
        async for event in super().stream(request):
            yield event


def speaker(words: int, every: float = _WORD_EVERY) -> LlmAgent:
    """An agent whose model answers with so many words, 15 ms apart."""
    provider = ScriptedProvider(rule=lambda _: " ".join(["word"] * words), delay=every)
    return LlmAgent(name=AGENT, model=ModelAdapter(provider, "bench", policy=NO_LIMITS))


def _speaking(words: int, every: float = _WORD_EVERY) -> Maker:
    def make(store: SqlSessionStore, notes: Notes) -> DurableAgent:
        del notes
        runner = AgentRunner(speaker(words, every), SessionServiceAdapter(store), name=APP)
        return DurableAgent(runner, store)

    return make


def runner(
    store: SqlSessionStore,
    provider: ScriptedProvider,
    *tools: Any,
    plugins: Sequence[BasePlugin] = (),
) -> AgentRunner:
    """A real agent on this model."""
    model = ModelAdapter(provider, "bench", policy=NO_LIMITS)
    agent = LlmAgent(name=AGENT, model=model, tools=as_adk_tools(tools))
    return AgentRunner(agent, SessionServiceAdapter(store), name=APP, plugins=plugins)


def _served(store: SqlSessionStore, provider: ScriptedProvider, *tools: Any) -> DurableAgent:
    """An agent with the plugins that `lango serve` gives it: model calls are recorded."""
    return DurableAgent(runner(store, provider, *tools, plugins=default_plugins(store)), store)


def instant(store: SqlSessionStore, notes: Notes) -> DurableAgent:
    """A real agent whose model answers at once."""
    return DurableAgent(runner(store, ScriptedProvider(rule=notes.called)), store)


def served_instant(store: SqlSessionStore, notes: Notes) -> DurableAgent:
    """An agent as it is served, whose model answers at once."""
    return _served(store, ScriptedProvider(rule=notes.called))


def served_usual(store: SqlSessionStore, notes: Notes) -> DurableAgent:
    """An agent as it is served, whose model takes half a second for ten words."""
    return _served(store, ScriptedProvider(rule=notes.called, delay=ANSWER_TAKES / DELTAS))


def served_with_tool(store: SqlSessionStore, notes: Notes) -> DurableAgent:
    """An agent as it is served, whose model answers at once: by a tool call, then in words."""

    @tool(idempotent=True)
    async def look_up(name: str) -> str:
        """Look something up."""
        return f"{name}: found"

    def rule(request: ModelRequest) -> Reply | str:
        text = notes.called(request)
        if request.messages[-1].is_tool:
            return text
        return Reply(calls=(ToolCall(f"call-{notes.calls}", "look_up", '{"name": "it"}'),))

    return _served(store, ScriptedProvider(rule=rule), look_up)


def usual(store: SqlSessionStore, notes: Notes) -> DurableAgent:
    """A real agent whose model takes half a second."""
    provider = ScriptedProvider(rule=notes.called, delay=ANSWER_TAKES / DELTAS)
    return DurableAgent(runner(store, provider), store)


def waiting(store: SqlSessionStore, notes: Notes) -> DurableAgent:
    """A real agent whose model answers one call after the other when the gate is opened."""
    return DurableAgent(runner(store, _Gated(notes, _ANSWERS_SLOWER)), store)


def waiting_together(store: SqlSessionStore, notes: Notes) -> DurableAgent:
    """A real agent whose model answers all calls at the moment when the gate is opened."""
    return DurableAgent(runner(store, _Gated(notes, 0)), store)


def busy(store: SqlSessionStore, notes: Notes) -> DurableAgent:
    """A real agent whose tool does something every millisecond, and would for ever."""

    @tool(idempotent=True)
    async def drip() -> str:
        """Do something again and again."""
        while True:
            notes.last_effect = time.monotonic()
            await asyncio.sleep(_EFFECT_EVERY)

    provider = ScriptedProvider(rule=_calls_drip(notes))
    return DurableAgent(runner(store, provider, drip), store)


def _calls_drip(notes: Notes) -> Callable[[ModelRequest], Reply]:
    def rule(request: ModelRequest) -> Reply:
        notes.called(request)
        return Reply(calls=(ToolCall(f"call-{notes.calls}", "drip", "{}"),))

    return rule


APPS: Final[dict[str, Maker]] = {
    "nothing": Nothing,
    "streaming": Streaming,
    "instant": instant,
    "usual": usual,
    "waiting": waiting,
    "waiting together": waiting_together,
    "busy": busy,
    **{f"{words} words": _speaking(words) for words in (10, 30, 300)},
    **{f"{words} words in a row": _speaking(words, every=0.0) for words in (SHORT, LONG)},
    "served, instant": served_instant,
    "served, usual": served_usual,
    "served, with a tool": served_with_tool,
}
