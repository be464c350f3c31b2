"""Agents, models and turns for the tests of plugins, all under a real Runner."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

import pytest
from google.adk.agents import (
    BaseAgent,
    LlmAgent,
    ParallelAgent,  # pyright: ignore[reportDeprecated]  # people have them
)
from google.adk.agents.run_config import RunConfig
from google.adk.apps.app import App
from google.adk.events.event import Event
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.plugins.base_plugin import BasePlugin
from google.adk.runners import Runner
from google.adk.sessions.base_session_service import BaseSessionService
from google.adk.sessions.in_memory_session_service import InMemorySessionService
from google.adk.sessions.session import Session
from google.genai import types
from pydantic import ConfigDict, Field

from lango.adk.models.adapter import ModelAdapter
from lango.core.messages.messages import ToolCall
from lango.testing import Reply, ScriptedProvider

APP, USER, SESSION = "app", "user", "session"

OLD_WAYS = [
    pytest.mark.filterwarnings("ignore:.*is deprecated in favor of Workflow"),
    # ADK's own AgentTool gives its Runner plugins in a way that ADK calls deprecated.
    pytest.mark.filterwarnings("ignore:The `plugins` argument is deprecated"),
]

Said = str | types.Part | list[types.Part] | Exception


class OtherModel(BaseLlm):
    """A model class outside lango; it says its replies in order, word by word when streaming."""

    model_config = ConfigDict(arbitrary_types_allowed=True)
    model: str = "other-1"
    replies: list[Said] = Field(default_factory=list[Said])
    requests: list[list[types.Content]] = Field(default_factory=list[list[types.Content]])
    meet: asyncio.Barrier | None = None  # where all wait for each other before they answer

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        self.requests.append([content.model_copy(deep=True) for content in llm_request.contents])
        said = self.replies.pop(0) if self.replies else "ok"
        if self.meet is not None:
            await self.meet.wait()
        if isinstance(said, Exception):
            raise said
        content = types.ModelContent(said)
        if stream and isinstance(said, str):
            for word in said.split():
                yield LlmResponse(content=types.ModelContent(word), partial=True)
        yield LlmResponse(
            content=content,
            finish_reason=types.FinishReason.STOP,
            usage_metadata=types.GenerateContentResponseUsageMetadata(
                prompt_token_count=100, candidates_token_count=10, thoughts_token_count=5
            ),
        )


def other(*replies: Said) -> OtherModel:
    return OtherModel(replies=list(replies))


def ours(*replies: Reply | str, **options: Any) -> ModelAdapter:
    return ModelAdapter(ScriptedProvider(replies), "demo", **options)


def called(name: str, call_id: str = "", **arguments: Any) -> types.Part:
    """A call, as another model makes it."""
    return types.Part(
        function_call=types.FunctionCall(id=call_id or None, name=name, args=arguments)
    )


def calling(name: str, call_id: str, arguments: str = "{}") -> Reply:
    """A call, as our scripted provider makes it."""
    return Reply(calls=(ToolCall(call_id, name, input=arguments),))


@dataclass
class PluginConversation:
    """One session of one app; every turn has a Runner of its own."""

    agent: BaseAgent
    plugins: Sequence[BasePlugin] = ()
    service: BaseSessionService = field(default_factory=InMemorySessionService)
    events: list[Event] = field(default_factory=list[Event])

    async def say(
        self,
        words: str | types.Part,
        *,
        streaming: bool = False,
        watch: Callable[[Event], None] | None = None,
    ) -> list[Event]:
        """One turn; the events it gave, also when it fails."""
        runner = Runner(
            app=App(name=APP, root_agent=self.agent, plugins=list(self.plugins)),
            session_service=self.service,
            auto_create_session=True,
        )
        config = RunConfig.model_validate({"streaming_mode": "sse" if streaming else None})
        self.events = []
        run = runner.run_async(
            user_id=USER,
            session_id=SESSION,
            new_message=types.Content(
                role="user", parts=[types.Part(text=words) if isinstance(words, str) else words]
            ),
            run_config=config,
        )
        async with aclosing(run) as events:
            async for event in events:
                self.events.append(event)
                if watch is not None:
                    watch(event)
        return self.events

    async def session(self) -> Session:
        found = await self.service.get_session(app_name=APP, user_id=USER, session_id=SESSION)
        assert found is not None
        return found


def agent(model: BaseLlm, *tools: Any, **options: Any) -> LlmAgent:
    given: dict[str, Any] = {"name": "root", **options}
    return LlmAgent(model=model, tools=list(tools), **given)


def in_parallel(*agents: BaseAgent) -> BaseAgent:
    return ParallelAgent(name="root", sub_agents=list(agents))  # pyright: ignore[reportDeprecated]


def answers(events: Iterable[Event]) -> list[dict[str, Any]]:
    """What tools answered, or others in their place."""
    return [
        response.response or {} for event in events for response in event.get_function_responses()
    ]


def unanswered(events: Iterable[Event]) -> set[str | None]:
    """The ids of calls without an answer."""
    known = list(events)
    calls = {call.id for event in known for call in event.get_function_calls()}
    return calls - {answer.id for event in known for answer in event.get_function_responses()}


def said(events: Iterable[Event]) -> str:
    return "".join(
        part.text
        for event in events
        if not event.partial
        for part in (event.content and event.content.parts) or []
        if part.text
    )
