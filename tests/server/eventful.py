"""A session in which much has happened: a retry, a tool that failed, an approval."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from lango.adk.models.adapter import ModelAdapter
from lango.agent.agent import Agent
from lango.core.messages.messages import ToolCall
from lango.core.messages.streams import Usage
from lango.core.turns.events import Approval
from lango.errors import ApprovalNeededError, RateLimitedError
from lango.providers.policy.retry import Policy
from lango.store.sessions.entries import SessionKey
from lango.store.sessions.store import SqlSessionStore
from lango.testing import Fault, Reply, ScriptedProvider
from lango.tools.function import tool


@tool(require_confirmation=True)
def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


@tool
def divide(by: int) -> float:
    """Divide one by a number."""
    return 1 / by


def calls(name: str, arguments: str) -> Reply:
    return Reply(calls=(ToolCall(f"call_{name}", name, input=arguments),), usage=Usage(100, 10, 4))


BUSY = Reply(fault=Fault(error=RateLimitedError("Slow down.")))
SCRIPT = (
    BUSY,
    calls("divide", '{"by": 0}'),
    calls("pay", '{"amount": 3}'),
    Reply("Paid.", usage=Usage(120, 5, 0, 2)),
)
"""What the model does: it is busy once, divides by zero, pays, and says so."""


@dataclass
class Eventful:
    """The agent, and how to talk to it as ann."""

    agent: Agent
    key: SessionKey

    @property
    def who(self) -> dict[str, Any]:
        return {"user": self.key.user_id, "session": self.key.session_id}

    async def ask(self, message: str = "Divide, then pay.") -> Approval:
        """Say something that ends with a question."""
        with pytest.raises(ApprovalNeededError) as caught:
            await self.agent.run_and_collect(message, **self.who)
        [approval] = caught.value.approvals
        return approval

    async def answer(self, approval: Approval, approved: bool = True) -> str:
        return await self.agent.run_and_collect([approval.answer(approved)], **self.who)


@asynccontextmanager
async def eventful(
    store: SqlSessionStore, key: SessionKey, script: tuple[Reply, ...] = SCRIPT
) -> AsyncGenerator[Eventful]:
    model = ModelAdapter(
        ScriptedProvider(script), "demo", policy=Policy(first_wait=0.01, longest_wait=0.02)
    )
    agent = Agent(
        name="root",
        model=model,
        tools=[pay, divide],
        store=store,
        tenant=key.tenant,
        app_name=key.app_name,
    )
    async with agent:
        yield Eventful(agent, key)
