"""The Agent class: an ADK agent with its sessions, ready to run turns."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable, Sequence
from typing import Any, Self

from lango.adk.apps.build import Model, llm_agent, services
from lango.adk.apps.compaction import Compaction
from lango.adk.apps.load import Root
from lango.adk.durable.run import DurableAgent
from lango.adk.models.adapter import ModelAdapter
from lango.adk.plugins import plugins as usual_plugins
from lango.adk.runner import AgentRunner, NextTurn, TurnOptions
from lango.adk.transfers import root_of
from lango.agent.durable import DurableTurns
from lango.agent.run import TurnRunner, run_and_collect, run_turn
from lango.core.turns.events import Answer, Approval, TurnEvent
from lango.errors import ConfigError, TurnNotFoundError
from lango.providers.embeddings import Embedder
from lango.store.sessions.store import SqlSessionStore
from lango.turns.engine.protocol import Engine
from lango.turns.worker import WorkerOptions


class Agent:
    """An agent with its sessions: an existing ADK agent, or a new one built from keywords.

    `root` is an ADK agent, App or Workflow, used as it is. Without it, `model` with `name`,
    `instruction`, `description`, `tools` and `sub_agents` builds an agent. `store` is a store or
    its URL; without one, sessions live in memory. `plugins` replaces the default set. `next_turn`
    selects the agent for the next message: the last speaker ("sticky") or always the root agent.
    `token_budget` limits how much of a session is loaded and sent: 0 means the default of 32,000,
    None as much as the model accepts.

    Tools and callbacks can search the user's memory and add to it. With `memory`, which needs a
    store, the messages of each turn that completes join it. With `embeddings`, the name of an
    embedding model, searches on PostgreSQL also find it by its meaning. `compaction` (ADK's
    EventsCompactionConfig, which needs a store too) summarises long conversations.

    With a store, turns survive the process: `resume` resumes an interrupted one. Pass an `engine`
    to share it with others on the same store; `worker` configures how turns run.
    """

    def __init__(
        self,
        root: Root | None = None,
        *,
        store: SqlSessionStore | str | None = None,
        tenant: str = "",
        app_name: str | None = None,
        plugins: Sequence[Any] | None = None,
        next_turn: NextTurn = "sticky",
        token_budget: int | None = 0,
        memory: bool = False,
        embeddings: Embedder | str | None = None,
        compaction: Compaction | None = None,
        engine: Engine | None = None,
        worker: WorkerOptions | None = None,
        model: Model | None = None,
        name: str = "agent",
        instruction: str = "",
        description: str = "",
        tools: Iterable[Any] = (),
        sub_agents: Iterable[Any] = (),
    ) -> None:
        if (root is None) == (model is None):
            raise TypeError("An Agent is made of an ADK agent, or of a model: give one of the two.")
        if store is None:
            _refuse_without_store(memory=memory, embeddings=embeddings, compaction=compaction)
        self._made_model = ModelAdapter(model) if isinstance(model, str) else None
        if model is not None:
            root = llm_agent(
                name,
                self._made_model or model,
                instruction=instruction,
                description=description,
                tools=tools,
                sub_agents=map(_adk_agent, sub_agents),
            )
        assert root is not None  # noqa: S101 - checked above
        self.root = root_of(root)
        self._services = services(
            store,
            tenant=tenant,
            root_agent_name=self.root.name,
            token_budget=token_budget,
            embeddings=embeddings,
        )
        if plugins is None:
            plugins = usual_plugins(self._services.store, tenant=tenant, token_budget=token_budget)
        self.runner = AgentRunner(
            root,
            *(self._services.sessions, self._services.artifacts, self._services.memory),
            plugins=plugins,
            next_turn=next_turn,
            name=app_name or "",
            compaction=compaction,
        )
        self.durable: DurableAgent | None = None
        self._durable_turns: DurableTurns | None = None
        if self._services.store is not None:
            self.durable = DurableAgent(self.runner, self._services.store, remembers=memory)
            self._durable_turns = DurableTurns(self.durable, engine, worker)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close tools and plugins, and the model and the store if they were passed by name.

        Running turns get a grace period to finish.
        """
        try:
            if self._durable_turns is not None:
                await self._durable_turns.close()
            await self.runner.close()
        finally:
            if self._made_model is not None:
                await self._made_model.close()
            await self._services.close()

    @property
    def _turns(self) -> TurnRunner:
        return self._durable_turns or self.runner

    async def run_and_collect(
        self, message: str | Sequence[Answer], *, user: str = "user", session: str = "default"
    ) -> str:
        """Send a message, or answers to approvals; return the turn's answer as one text.

        Raises the error that ended the turn; ApprovalNeededError if a tool call waits for a person.
        """
        return await run_and_collect(self._turns, user, session, message)

    def stream(
        self,
        message: str,
        *,
        user: str = "user",
        session: str = "default",
        abort: asyncio.Event | None = None,
    ) -> AsyncGenerator[TurnEvent]:
        """Run a turn and yield its events as they happen; set `abort` to cancel it."""
        return run_turn(self._turns, user, session, message, TurnOptions(abort=abort))

    def answer(
        self,
        answers: Sequence[Answer],
        *,
        user: str = "user",
        session: str = "default",
        abort: asyncio.Event | None = None,
    ) -> AsyncGenerator[TurnEvent]:
        """Submit answers to a waiting turn, and yield the events of its rest."""
        return run_turn(self._turns, user, session, answers, TurnOptions(abort=abort))

    async def unfinished(self, *, user: str = "user", session: str = "default") -> list[str]:
        """The ids of a session's turns that are queued, running or interrupted."""
        if self._durable_turns is None:
            return []
        return [turn.id for turn in await self._durable_turns.unfinished(user, session)]

    def resume(
        self, turn_id: str, *, abort: asyncio.Event | None = None
    ) -> AsyncGenerator[TurnEvent]:
        """Yield a turn's events from its start; resume it here unless another process runs it."""
        if self._durable_turns is None:
            raise TurnNotFoundError("Without a store there are no turns to resume.")
        return self._durable_turns.resume(turn_id, abort=abort)

    async def pending(self, *, user: str = "user", session: str = "default") -> list[Approval]:
        """The approvals a session waits for, oldest first."""
        return await self.runner.pending(user, session)


def _refuse_without_store(**options: object) -> None:
    """Refuse the options that need a store."""
    for name, value in options.items():
        if value:
            raise ConfigError(f"`{name}` needs a store: pass `store` with its URL.")


def _adk_agent(agent: Any) -> Any:
    return agent.root if isinstance(agent, Agent) else agent
