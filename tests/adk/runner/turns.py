"""Turns of scripted agents by our runner, on any session service."""

import json
from collections.abc import Sequence
from typing import Any

from google.adk.agents import (
    BaseAgent,
    LlmAgent,
    SequentialAgent,  # pyright: ignore[reportDeprecated]  # people have them
)
from google.adk.plugins.base_plugin import BasePlugin
from google.adk.sessions.base_session_service import BaseSessionService
from google.adk.sessions.in_memory_session_service import InMemorySessionService

from lango.adk.apps.load import Root
from lango.adk.models.adapter import ModelAdapter
from lango.adk.runner import AgentRunner, NextTurn, TurnOptions, UserInput
from lango.agent.run import run_turn
from lango.core.messages.messages import ToolCall
from lango.core.turns.events import MessageCompleted, TurnEvent
from lango.providers.base import ModelRequest
from lango.testing import Reply, ScriptedProvider

APP, USER, SESSION = "app", "user", "session"


class Script:
    """The replies of an agent's model, and the requests it got."""

    def __init__(self, *replies: Reply | str) -> None:
        self.provider = ScriptedProvider(replies)

    @property
    def requests(self) -> list[ModelRequest]:
        return list(self.provider.requests)

    def agent(self, name: str, **options: Any) -> LlmAgent:
        return LlmAgent(name=name, model=ModelAdapter(self.provider, "demo"), **options)


def agent(name: str, *replies: Reply | str, **options: Any) -> LlmAgent:
    return Script(*replies).agent(name, **options)


def call(name: str, text: str = "", **arguments: Any) -> Reply:
    """A reply that calls a tool. The id is left to the model adapter."""
    return Reply(text, calls=(ToolCall("", name, input=json.dumps(arguments)),))


def transfer(target: object, text: str = "") -> Reply:
    return call("transfer_to_agent", text, agent_name=target)


def sequence(*agents: BaseAgent) -> BaseAgent:
    return SequentialAgent(name="root", sub_agents=list(agents))  # pyright: ignore[reportDeprecated]


def runner_of(
    root: Root,
    *plugins: BasePlugin,
    sessions: BaseSessionService | None = None,
    next_turn: NextTurn = "sticky",
) -> AgentRunner:
    return AgentRunner(
        root,
        sessions or InMemorySessionService(),
        plugins=plugins,
        next_turn=next_turn,
        name=APP,
    )


async def once(
    runner: AgentRunner, user_input: UserInput | None = "hi", **options: Any
) -> list[TurnEvent]:
    """The events of a turn that is tried once."""
    return [event async for event in runner.run(USER, SESSION, user_input, TurnOptions(**options))]


async def corrected(
    runner: AgentRunner, user_input: UserInput = "hi", **options: Any
) -> list[TurnEvent]:
    """The events of a turn with its second try."""
    turn = run_turn(runner, USER, SESSION, user_input, TurnOptions(**options))
    return [event async for event in turn]


def kinds(events: Sequence[TurnEvent]) -> list[str]:
    return [event.type for event in events]


def said(events: Sequence[TurnEvent]) -> list[tuple[str, str]]:
    return [(event.author, event.text) for event in events if isinstance(event, MessageCompleted)]


class _Anything:
    """Equal to whatever it is compared with."""

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 0


anything: Any = _Anything()
