"""Loads in advance what ADK would load in the first turn."""

from __future__ import annotations

import gc
from contextlib import aclosing
from typing import Final

from google.adk.agents import LlmAgent
from google.adk.apps.app import App
from google.adk.runners import Runner
from google.adk.sessions.in_memory_session_service import InMemorySessionService
from google.genai import types

from lango.adk.compat.a2a import skip_a2a
from lango.adk.models.adapter import ModelAdapter
from lango.telemetry.tracing.current import silence

_COLLECTIONS: Final = (2_000, 10, 500)
"""The garbage collector's thresholds for its three generations.

A turn leaves about thirty objects that only a full collection finds: one in about a thousand turns
is enough. The partial collections before it are kept short.
"""


async def warm_up() -> None:
    """Import what ADK imports when it first runs, so that no user waits for it.

    Runs one turn of an agent with a tool and a scripted model, in memory, and keeps nothing of it.
    Call it once, in a process that then serves.
    """
    skip_a2a()
    runner = Runner(
        app=App(name="warm_up", root_agent=_agent()),
        session_service=InMemorySessionService(),
        auto_create_session=True,
    )
    message = types.UserContent("call ready {}")
    with silence():
        async with aclosing(
            runner.run_async(user_id="warm_up", session_id="warm_up", new_message=message)
        ) as events:
            async for _ in events:
                pass
        await runner.close()
    _settle()


def _settle() -> None:
    """Exclude all loaded objects from garbage collection: they stay in use.

    Otherwise every full collection walks over them and blocks the event loop for that long. A
    collection over a thousand waiting turns takes as long, so full collections are made rare.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_COLLECTIONS)


def _agent() -> LlmAgent:
    def ready() -> str:
        """Say that the agent is ready."""
        return "ready"

    return LlmAgent(name="warm_up", model=ModelAdapter("scripted:demo"), tools=[ready])
