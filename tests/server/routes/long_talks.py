"""A conversation longer than its budget, with a model that remembers what it was sent."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from lango.adk.models.adapter import ModelAdapter
from lango.agent.agent import Agent
from lango.core.messages.messages import Message
from lango.store.sessions.entries import SessionKey, StoredMessage
from lango.store.sessions.store import SqlSessionStore
from lango.testing import ScriptedProvider

BUDGET = 400
INSTRUCTION = "Answer in one line."


async def add(a: int, b: int) -> dict[str, Any]:
    """Add two numbers."""
    return {"sum": a + b}


@dataclass
class LongTalk:
    """A session of ann's, and the model in it."""

    store: SqlSessionStore
    key: SessionKey
    agent: Agent
    provider: ScriptedProvider

    async def say(self, *messages: str) -> None:
        for message in messages:
            await self.agent.run_and_collect(
                message, user=self.key.user_id, session=self.key.session_id
            )

    async def fill(self, turns: int = 6) -> None:
        """Say so much that not all of it fits."""
        await self.say(*(f"Number {n}: " + "many words about it " * 5 for n in range(turns)))

    async def rows(self) -> list[StoredMessage]:
        return await self.store.messages(self.key, limit=200)

    def request(self, number: int = -1) -> list[Message]:
        """The messages of a request that the model got, without the instruction."""
        return [one for one in self.provider.requests[number].messages if one.role != "system"]

    async def not_in_request(self, number: int = -1, upto: int | None = None) -> list[int]:
        """The stored messages that a request did not have, by their text; each is another."""
        texts = {one.content for one in self.request(number)}
        return [
            row.seq
            for row in await self.rows()
            if row.content not in texts and (upto is None or row.seq <= upto)
        ]


@asynccontextmanager
async def long_talk(
    store: SqlSessionStore, key: SessionKey, *replies: Any, budget: int = BUDGET
) -> AsyncGenerator[LongTalk]:
    provider = ScriptedProvider(replies)
    agent = Agent(
        name="root",
        model=ModelAdapter(provider, "demo", token_budget=budget),
        instruction=INSTRUCTION,
        tools=[add],
        store=store,
        tenant=key.tenant,
        app_name=key.app_name,
    )
    async with agent:
        yield LongTalk(store, key, agent, provider)
