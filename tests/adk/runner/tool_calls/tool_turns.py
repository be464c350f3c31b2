"""Turns of a real Runner whose model calls tools: what the tools' answers were."""

from __future__ import annotations

from contextlib import aclosing
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.events.event import Event
from google.adk.runners import Runner
from google.adk.sessions.in_memory_session_service import InMemorySessionService
from google.genai import types

from tests.adk.runner.scripted import ScriptedLlm

APP, USER, SESSION = "tools", "user-1", "session-1"
CONFIRM = "adk_request_confirmation"


class ToolConversation:
    """One session with an agent that has the given tools."""

    def __init__(self, *tools: Any, **services: Any) -> None:
        agent = LlmAgent(name="root", model=ScriptedLlm(), tools=[*tools])
        services.setdefault("session_service", InMemorySessionService())
        self.runner = Runner(app_name=APP, agent=agent, auto_create_session=True, **services)
        self.events: list[Event] = []

    async def say(self, text: str) -> list[dict[str, Any]]:
        """What the tools answered to the calls this text made."""
        return await self._turn(types.Part(text=text))

    async def decide(self, confirmed: bool) -> list[dict[str, Any]]:
        """Answer the newest question whether a call may run; what the tools answered then."""
        calls = [call for event in self.events for call in event.get_function_calls()]
        question = [call for call in calls if call.name == CONFIRM][-1]
        answer = types.FunctionResponse(
            id=question.id, name=CONFIRM, response={"confirmed": confirmed}
        )
        return await self._turn(types.Part(function_response=answer))

    @property
    def questions(self) -> int:
        """How often a person was asked."""
        calls = [call for event in self.events for call in event.get_function_calls()]
        return sum(1 for call in calls if call.name == CONFIRM)

    async def _turn(self, part: types.Part) -> list[dict[str, Any]]:
        message = types.Content(role="user", parts=[part])
        new: list[Event] = []
        async with aclosing(
            self.runner.run_async(user_id=USER, session_id=SESSION, new_message=message)
        ) as events:
            async for event in events:
                new.append(event)
        self.events += new
        responses = [one for event in new for one in event.get_function_responses()]
        return [one.response or {} for one in responses]
