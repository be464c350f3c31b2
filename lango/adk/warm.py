"""What ADK leaves to the first turn, done before it."""

from __future__ import annotations

import gc
import sys
from contextlib import aclosing
from importlib.util import find_spec
from types import ModuleType
from typing import Final

from google.adk.agents import LlmAgent
from google.adk.apps.app import App
from google.adk.runners import Runner
from google.adk.sessions.in_memory_session_service import InMemorySessionService
from google.genai import types

from lango.adk.model import ModelAdapter

_A2A_AGENT: Final = "google.adk.agents.remote_a2a_agent"
_COLLECTIONS: Final = (2_000, 10, 500)
"""How many new objects the collector waits for, and how many looks at those before longer ones.

A turn leaves some thirty objects behind that only a full look finds: one in some thousand turns is
enough. The looks before it are kept short.
"""


class _Absent(ModuleType):
    """Stands for a module that cannot be imported, and says so to who asks for a part of it.

    What looks at every module there is, as linters and test tools do, asks for other names.
    """

    def __getattr__(self, name: str) -> object:
        if not name[:1].isupper():
            raise AttributeError(name)
        raise ImportError(f"{self.__name__} needs a2a: pip install 'google-adk[a2a]'", name=name)


def skip_a2a() -> None:
    """Without a2a, keep ADK from trying to import what needs it again in every turn."""
    if _A2A_AGENT not in sys.modules and find_spec("a2a") is None:
        sys.modules[_A2A_AGENT] = _Absent(_A2A_AGENT)


async def warm_up() -> None:
    """Import what ADK imports when it first runs, so that no user waits for it.

    One turn of an agent with a tool and a scripted model, in memory; nothing is left of it. To be
    called once, by a process that then serves.
    """
    skip_a2a()
    runner = Runner(
        app=App(name="warm_up", root_agent=_agent()),
        session_service=InMemorySessionService(),
        auto_create_session=True,
    )
    said = types.UserContent("call ready {}")
    async with aclosing(
        runner.run_async(user_id="nobody", session_id="warm_up", new_message=said)
    ) as events:
        async for _ in events:
            pass
    await runner.close()
    _settle()


def _settle() -> None:
    """Take all that is loaded out of the garbage collector's sight: it is there to stay.

    Else every full collection walks over it, and the event loop stands still for that long. One
    over a thousand turns that wait is as long, so there are few of them.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_COLLECTIONS)


def _agent() -> LlmAgent:
    def ready() -> str:
        """Say that the agent is ready."""
        return "ready"

    return LlmAgent(name="warm_up", model=ModelAdapter("scripted:demo"), tools=[ready])
