"""Agents of other shapes: hand-overs, concurrent agents, code without a model, a later result."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

from google.adk.agents import (
    BaseAgent,
    LlmAgent,
    ParallelAgent,  # pyright: ignore[reportDeprecated]  # people have them
)
from google.adk.agents.invocation_context import InvocationContext
from google.adk.code_executors.base_code_executor import BaseCodeExecutor
from google.adk.code_executors.code_execution_utils import CodeExecutionInput, CodeExecutionResult
from google.adk.events.event import Event
from google.adk.tools.long_running_tool import LongRunningFunctionTool
from google.genai import types

from lango.adk.apps.build import llm_agent
from lango.providers.base import ModelRequest
from lango.providers.scripted import Reply
from tests.console.agents import PAUSE, call, model, wait_at_the_gate
from tests.console.stage import HOSTILE

ROUNDS = 3
_ROOMY = 20_000
"""Tokens: more than all hand-overs take."""
DESK, TEA = "desk", "tea"
STREETS = ("Mill Lane", "High Street")
FIRST_WORDS, LAST_WORDS = "Looking into the files.", "All files were read."


def _transfers(request: ModelRequest) -> int:
    """The transfers that this agent has asked for."""
    return sum(len(message.tool_calls) for message in request.messages if message.is_assistant)


def _desk_says(request: ModelRequest) -> Reply:
    if _transfers(request) < ROUNDS:
        return Reply(calls=(call("transfer_to_agent", agent_name=TEA),))
    return Reply(f"So much for tea. {PAUSE} Anything else?", thoughts="They know enough.")


def _tea_says(request: ModelRequest) -> Reply:
    text = f"Fact {_transfers(request) + 1} about tea."
    return Reply(text, calls=(call("transfer_to_agent", agent_name=DESK),))


def team() -> LlmAgent:
    """A desk that asks a colleague three times, and gets the customer back each time."""
    tea = llm_agent(TEA, model(_tea_says, _ROOMY), description="Knows tea.")
    return llm_agent(DESK, model(_desk_says, _ROOMY), sub_agents=[tea])


def _reporter(name: str) -> LlmAgent:
    return llm_agent(name, model(lambda _: f"In the {name} {PAUSE} it rains. It is cold there."))


def pair() -> BaseAgent:
    """Two agents that speak at the same time."""
    reporters: list[BaseAgent] = [_reporter("north"), _reporter("south")]
    return ParallelAgent(name="pair", sub_agents=reporters)  # pyright: ignore[reportDeprecated]


class _Clerk(BaseAgent):
    """Speaks in whole messages, without a model."""

    async def _run_async_impl(self, ctx: InvocationContext) -> AsyncGenerator[Event]:
        yield self._says(ctx, FIRST_WORDS)
        await asyncio.to_thread(wait_at_the_gate)
        yield self._says(ctx, LAST_WORDS)

    def _says(self, ctx: InvocationContext, text: str) -> Event:
        return Event(
            invocation_id=ctx.invocation_id,
            author=self.name,
            branch=ctx.branch,
            content=types.ModelContent(text),
        )


def clerk() -> BaseAgent:
    """An agent whose messages come without deltas."""
    return _Clerk(name="clerk")


def fetch_parcel(street: str) -> dict[str, str]:
    """Send a courier, who reports later."""
    return {"status": "pending", "street": street}


def _courier_says(request: ModelRequest) -> Reply:
    last = request.messages[-1]
    if not last.is_tool:
        return Reply(calls=tuple(call("fetch_parcel", street=street) for street in STREETS))
    results = [each.output for message in request.messages for each in message.tool_calls]
    return Reply(f"{sum('fetched' in str(result) for result in results)} of 2 parcels are here.")


def courier() -> LlmAgent:
    """An agent whose tool gives its result later."""
    return llm_agent("courier", model(_courier_says), tools=[LongRunningFunctionTool(fetch_parcel)])


class _Computes(BaseCodeExecutor):
    """Runs nothing, and knows the output."""

    def execute_code(
        self, invocation_context: InvocationContext, code_execution_input: CodeExecutionInput
    ) -> CodeExecutionResult:
        del invocation_context, code_execution_input
        return CodeExecutionResult(stdout=f"42 {HOSTILE}")


def _coder_says(request: ModelRequest) -> str:
    if any(message.is_assistant for message in request.messages):
        return f"So it is {PAUSE} forty-two."
    return "Let me compute it.\n```python\nprint(6 * 7)\n```"


def coder() -> LlmAgent:
    """One whose model writes code, which a code executor runs."""
    agent = llm_agent("coder", model(_coder_says, _ROOMY))
    agent.code_executor = _Computes()
    return agent
