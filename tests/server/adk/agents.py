"""Agents of these tests: each maker gives a new agent whose model follows the same script."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

from google.adk.agents import BaseAgent, LlmAgent, SequentialAgent  # pyright: ignore[reportDeprecated]
from google.adk.agents.callback_context import CallbackContext
from google.adk.agents.invocation_context import InvocationContext
from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.tools.function_tool import FunctionTool
from google.adk.tools.long_running_tool import LongRunningFunctionTool
from google.adk.tools.tool_context import ToolContext
from google.genai import types

from lango.adk.models.adapter import ModelAdapter
from lango.core.messages.messages import ToolCall
from lango.errors import AuthenticationError
from lango.testing import Fault, Reply, ScriptedProvider


def add(a: int, b: int) -> dict[str, int]:
    """Add two numbers."""
    return {"sum": a + b}


async def draw(name: str, tool_context: ToolContext) -> str:
    """Draw a picture."""
    part = types.Part.from_bytes(data=b"\x89PNG\r\n\x1a\npixels", mime_type="image/png")
    version = await tool_context.save_artifact(name, part)
    return f"version {version}"


def learn(fact: str, tool_context: ToolContext) -> str:
    """Learn a fact, in all scopes of state."""
    for scope in ("", "user:", "temp:"):
        tool_context.state[f"{scope}fact"] = fact
    return "learnt"


def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


def errand(name: str) -> dict[str, str]:
    """Send a courier, who reports later."""
    return {"status": "pending", "name": name}


def model(*replies: Reply | str) -> ModelAdapter:
    return ModelAdapter(ScriptedProvider(replies), "demo")


def talker() -> LlmAgent:
    return LlmAgent(
        name="talker",
        model=model(Reply("Good morning to you, Ann.", thoughts="She is early today")),
        tools=[add, draw, learn],
        output_key="last_words",
    )


def with_callbacks() -> LlmAgent:
    def before(callback_context: CallbackContext) -> None:
        callback_context.state["temp:secret"] = "hush"
        callback_context.state["begun"] = True

    def after(callback_context: CallbackContext) -> None:
        callback_context.state["temp:other"] = "hush"
        callback_context.state["ended"] = True

    return LlmAgent(
        name="careful",
        model=model("I am careful.", "Still careful.", "Always careful."),
        before_agent_callback=before,
        after_agent_callback=after,
    )


def transferring() -> LlmAgent:
    move = ToolCall("c_move", "transfer_to_agent", input='{"agent_name": "clerk"}')
    clerk = LlmAgent(
        name="clerk", description="Knows the shop.", model=model("The shop is open.", "Still open.")
    )
    return LlmAgent(
        name="desk", model=model(Reply("One moment.", calls=(move,))), sub_agents=[clerk]
    )


def in_sequence() -> Any:
    first, second = (
        LlmAgent(name=name, model=model(f"I am {name}.", f"{name} again.")) for name in ("a", "b")
    )
    return SequentialAgent(  # pyright: ignore[reportDeprecated]
        name="both", sub_agents=[first, second]
    )


def paying() -> LlmAgent:
    tools = [FunctionTool(pay, require_confirmation=True), LongRunningFunctionTool(errand)]
    return LlmAgent(name="bank", model=ModelAdapter(ScriptedProvider(), "demo"), tools=[*tools])


def raising() -> LlmAgent:
    def before(*_: Any, **__: Any) -> None:
        raise ValueError("the password is hush")

    return LlmAgent(name="raising", model=model("Never"), before_model_callback=before)


def failing() -> LlmAgent:
    broken = Reply("I was", fault=Fault(after=2, error=AuthenticationError("The key is wrong.")))
    return LlmAgent(name="broken", model=model(broken, broken))


class Stepwise(BaseAgent):
    """Changes state between two answers, and gives a stream the time to read each."""

    async def _run_async_impl(self, ctx: InvocationContext) -> AsyncGenerator[Event]:
        fields: dict[str, Any] = {"author": self.name, "invocation_id": ctx.invocation_id}
        yield Event(**fields, content=types.ModelContent("First"))
        await asyncio.sleep(0.5)
        yield Event(**fields, actions=EventActions(state_delta={"step": 1}))
        await asyncio.sleep(0.5)
        yield Event(**fields, content=types.ModelContent("Second"))


class _Whole(BaseLlm):
    """A model that does not stream."""

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse]:
        del llm_request, stream
        parts = [types.Part(text="thinking aloud", thought=True), types.Part(text="Answer")]
        yield LlmResponse(content=types.Content(role="model", parts=parts))


def thinking() -> LlmAgent:
    return LlmAgent(name="thinking", model=_Whole(model="whole"))
