"""A sample agent's conversation: on our parts, or on ADK's own, with the same scripted model."""

from __future__ import annotations

import json
import re
import sys
from collections import deque
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import pytest
from google.adk.agents.run_config import RunConfig
from google.adk.apps.app import App
from google.adk.events.event import Event
from google.adk.models.registry import LLMRegistry
from google.adk.plugins.base_plugin import BasePlugin
from google.adk.runners import Runner
from google.adk.sessions.base_session_service import BaseSessionService
from google.adk.sessions.in_memory_session_service import InMemorySessionService
from google.genai import types

import lango
from lango.adk.apps.load import load_root
from lango.adk.apps.preload import skip_a2a
from lango.adk.models.adapter import ModelAdapter
from lango.adk.sessions.service import SessionServiceAdapter
from lango.core.messages.messages import ToolCall
from lango.providers.base import ModelRequest
from lango.store.sessions.store import SqlSessionStore
from lango.testing import Reply, ScriptedProvider

APP, USER, SESSION = "samples", "user-1", "session-1"
_NAME = re.compile(r'Your internal name is "(\w+)"')

Says = Mapping[str, Sequence[Reply | str]]
"""What each agent's model says, call after call; by its name, or how its instruction begins."""
Parts = Callable[[], AbstractAsyncContextManager[tuple[BaseSessionService, list[BasePlugin]]]]
"""The services and plugins of one turn; what the turn leaves behind, the next one finds."""


def call(tool: str, /, **arguments: Any) -> ToolCall:
    """A tool call; its id is left to the model adapter."""
    return ToolCall("", tool, input=json.dumps(arguments))


def calls(*made: ToolCall, text: str = "") -> Reply:
    """A reply that calls tools."""
    return Reply(text, made)


def transfer(agent: str) -> Reply:
    """A reply that hands over."""
    return calls(call("transfer_to_agent", agent_name=agent))


@dataclass(frozen=True)
class SampleScript:
    """What people say to a sample, and what its models say."""

    turns: Sequence[str]
    says: Says
    state: Mapping[str, Any] = field(default_factory=dict[str, Any])


def scripted(says: Says) -> ScriptedProvider:
    """One model for all agents of a sample: it tells by its instruction which one is asking."""
    left = {agent: deque(replies) for agent, replies in says.items()}

    def rule(request: ModelRequest) -> Reply | str:
        instruction = request.messages[0].content
        named = _NAME.search(instruction)
        # A node of a graph is not told its name: it is known by how its instruction begins.
        who = named[1] if named else next(key for key in left if instruction.startswith(key))
        return left[who].popleft()

    return ScriptedProvider(rule=rule)


@dataclass
class SampleResult:
    """All that can be seen of a conversation."""

    given: list[Event] = field(default_factory=list[Event])
    """What the Runner gave, as it ran."""
    stored: list[Event] = field(default_factory=list[Event])
    """What a service that knows nothing yet loads."""
    state: dict[str, Any] = field(default_factory=dict[str, Any])
    requests: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    """What the model was sent."""


async def run(
    sample: str,
    talk: SampleScript,
    parts: Parts,
    monkeypatch: pytest.MonkeyPatch,
    *,
    streaming: bool,
) -> SampleResult:
    """Each turn by a Runner of its own, with the sample's module imported for it alone."""
    skip_a2a()
    ran, provider = SampleResult(), scripted(talk.says)
    with monkeypatch.context() as patch:
        # The samples name a model as everybody does; ADK's registry is asked for it, and this is
        # what it has.
        patch.setattr(LLMRegistry, "new_llm", lambda _model="": ModelAdapter(provider, "m"))
        async with parts() as (sessions, _):
            await sessions.create_session(
                app_name=APP, user_id=USER, session_id=SESSION, state=dict(talk.state)
            )
        for text in talk.turns:
            sys.modules.pop(sample, None)
            root: Any = await load_root(f"{sample}:root_agent")
            async with parts() as (sessions, plugins):
                app = App(name=APP, root_agent=root, plugins=plugins)
                runner = Runner(app=app, session_service=sessions)
                ran.given += await _turn(runner, text, streaming=streaming)
                await runner.close()
    async with parts() as (sessions, _):
        session = await sessions.get_session(app_name=APP, user_id=USER, session_id=SESSION)
    assert session is not None
    ran.stored, ran.state = list(session.events), dict(session.state)
    ran.requests = [asdict(replace(request, on_usage=None)) for request in provider.requests]
    return ran


async def _turn(runner: Runner, text: str, *, streaming: bool) -> list[Event]:
    config = RunConfig.model_validate({"streaming_mode": "sse" if streaming else None})
    message = types.Content(role="user", parts=[types.Part(text=text)])
    turn = runner.run_async(
        user_id=USER, session_id=SESSION, new_message=message, run_config=config
    )
    async with aclosing(turn) as events:
        return [event.model_copy(deep=True) async for event in events]


def ours(url: str, tenant: str) -> Parts:
    """Our store and all our plugins, opened anew each time."""

    @asynccontextmanager
    async def opened() -> AsyncGenerator[tuple[BaseSessionService, list[BasePlugin]]]:
        async with SqlSessionStore(url) as store:
            service = SessionServiceAdapter(store, tenant=tenant)
            yield service, lango.plugins(store, tenant=tenant)

    return opened


def theirs() -> Parts:
    """ADK's in-memory service, and no plugin."""
    service = InMemorySessionService()

    @asynccontextmanager
    async def opened() -> AsyncGenerator[tuple[BaseSessionService, list[BasePlugin]]]:
        yield service, []

    return opened
