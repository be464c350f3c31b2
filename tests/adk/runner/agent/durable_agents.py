"""Agents with a store, and the turns they leave in it."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

from lango.agent.agent import Agent
from lango.core.turns.events import TurnEvent
from lango.store.sessions.store import SqlSessionStore
from lango.turns.engine.database import LocalEngine
from lango.turns.service import Turns

Made = Callable[..., Agent]
APP = "clerk"


@asynccontextmanager
async def service(store_url: str, tenant: str) -> AsyncGenerator[Turns]:
    """The turns as another process sees them."""
    async with SqlSessionStore(store_url) as store, LocalEngine(store.database) as engine:
        yield Turns(store, engine, tenant=tenant)


async def told(events: Any) -> list[TurnEvent]:
    return [event async for event in events]
