"""Turns of a real ADK Runner with one of our models, on our store."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Final

from google.adk.agents.llm_agent import LlmAgent
from google.adk.agents.run_config import (
    RunConfig,
    StreamingMode,  # pyright: ignore[reportPrivateImportUsage]  # its documented home
)
from google.adk.runners import Runner
from google.genai import types

from lango.adk.models.adapter import ModelAdapter
from lango.adk.sessions.service import SessionServiceAdapter
from lango.providers.base import Provider

APP: Final = "faults"
USER: Final = "user"
SESSION: Final = "session"


@dataclass(slots=True)
class Turn:
    """The result of one turn."""

    streamed: str = ""
    final: str = ""
    finals: int = 0
    error: Exception | None = None
    calls: list[str] = field(default_factory=list[str])  # the ids of the executed calls


class RunnerConversation:
    """A conversation with an agent that can add."""

    def __init__(self, service: SessionServiceAdapter, provider: Provider, model: str) -> None:
        self.sums: list[int] = []
        agent = LlmAgent(name="root", model=ModelAdapter(provider, model), tools=[self.add])
        self._runner = Runner(app_name=APP, agent=agent, session_service=service)

    def add(self, a: int, b: int) -> dict[str, int]:
        """Add two numbers."""
        self.sums.append(a + b)
        return {"sum": a + b}

    async def turn(self, text: str) -> Turn:
        """Send a message; return the answer or the error."""
        turn = Turn()
        message = types.Content(role="user", parts=[types.Part(text=text)])
        config = RunConfig(streaming_mode=StreamingMode.SSE, max_llm_calls=6)
        try:
            async for event in self._runner.run_async(
                user_id=USER, session_id=SESSION, new_message=message, run_config=config
            ):
                parts = (event.content.parts if event.content else None) or []
                text_of_event = "".join(part.text or "" for part in parts if not part.thought)
                if event.partial:
                    turn.streamed += text_of_event
                    continue
                turn.calls += [str(call.id) for call in event.get_function_calls()]
                if event.is_final_response() and not event.error_code:
                    turn.final, turn.finals = text_of_event, turn.finals + 1
        except Exception as error:  # noqa: BLE001 - the turn's own end, judged by the caller
            turn.error = error
        return turn


@asynccontextmanager
async def talk(
    url: str, tenant: str, provider: Provider, model: str
) -> AsyncGenerator[RunnerConversation]:
    """A new conversation."""
    async with SessionServiceAdapter(url, tenant=tenant) as service:
        await service.create_session(app_name=APP, user_id=USER, session_id=SESSION)
        yield RunnerConversation(service, provider, model)


@contextmanager
def quiet() -> Generator[None]:
    """Silence ADK's tracebacks: turns fail on purpose here."""
    logger = logging.getLogger("google_adk")
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.setLevel(level)
