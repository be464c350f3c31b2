"""The agent of these rows: its model echoes its input, its tools record their effects."""

import asyncio
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from google.adk.agents import LlmAgent
from google.adk.tools.long_running_tool import LongRunningFunctionTool

from lango.adk.artifacts import SqlArtifactService
from lango.adk.durable.run import DurableAgent
from lango.adk.models.adapter import ModelAdapter
from lango.adk.runner import AgentRunner
from lango.adk.sessions.service import SessionServiceAdapter
from lango.adk.tools.adapter import as_adk_tools
from lango.core.messages.messages import Message
from lango.providers.base import ModelRequest
from lango.providers.scripted import Reply, ScriptedProvider, demo
from lango.store.sessions.store import SqlSessionStore
from lango.tools.function import tool
from lango.tools.progress import report_progress

PATIENCE = 60.0
THEN: Final = " then "
"""Separates the rounds of a message: the model calls tools once per round, then answers."""


@dataclass(frozen=True)
class Effects:
    """A file that tools of any process append lines to."""

    path: Path

    def add(self, *words: object) -> None:
        line = " ".join(map(str, (os.getpid(), time.monotonic(), *words))) + "\n"
        file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(file, line.encode())
        finally:
            os.close(file)

    def lines(self) -> list[list[str]]:
        """The words of each line: process, time, then the tool's words."""
        if not self.path.exists():
            return []
        return [line.split(" ") for line in self.path.read_text().splitlines()]

    def words(self) -> list[str]:
        return [" ".join(line[2:]) for line in self.lines()]

    async def wait(self, until: Callable[[list[str]], bool]) -> None:
        """Poll the file until a condition on its words holds."""
        async with asyncio.timeout(PATIENCE):
            while not until(self.words()):  # noqa: ASYNC110
                await asyncio.sleep(0.005)


def tools_of(effects: Effects, version: str = "") -> list[Any]:
    @tool(idempotent=True)
    async def step(name: str) -> str:
        """Take a step."""
        effects.add("begin", name)
        await asyncio.sleep(0.005)
        effects.add("end", name)
        return "done"

    @tool
    async def mark(name: str, seconds: float = 0.005) -> str:
        """Do what must not be done twice."""
        effects.add("mark", name)
        await asyncio.sleep(seconds)
        return "marked"

    @tool(idempotent=True)
    async def drip(count: int) -> str:
        """Do something again and again."""
        for number in range(count):
            effects.add("drip", number)
            await asyncio.sleep(0.005)
        return "dry"

    async def hold(name: str) -> str:
        """Wait until a file of that name is there."""
        effects.add("held", name)
        while not effects.path.with_name(name).exists():  # noqa: ASYNC110 - of another process
            await asyncio.sleep(0.02)
        effects.add("released", name)
        return "released"

    @tool(idempotent=True)
    async def block(name: str) -> str:
        """Block the event loop in the first process that runs it."""
        first = not effects.path.with_name(name).exists()
        effects.path.with_name(name).touch()
        effects.add("blocks" if first else "passes", name)
        while first and not effects.path.with_name("unblock").exists():
            time.sleep(0.02)  # noqa: ASYNC251 - what this test is about
        effects.add("unblocked", name)
        return "over"

    @tool(require_confirmation=True)
    async def pay(amount: int) -> str:
        """Pay."""
        effects.add("paid", amount)
        return f"paid {amount}"

    holds = [
        tool(name=name, idempotent=True, timeout=None)(hold)
        for name in ("hold", only_in(version))
        if name
    ]

    ours = as_adk_tools(
        [step, mark, drip, *holds, _climbing(effects), block, pay, _deadly(effects)]
    )
    return [*ours, _long_running(effects)]


def _long_running(effects: Effects) -> LongRunningFunctionTool:
    async def errand(name: str) -> dict[str, str]:
        """Send a courier, who reports later."""
        effects.add("sent", name)
        return {"status": "pending"}

    return LongRunningFunctionTool(errand)


def _climbing(effects: Effects) -> Any:
    @tool(idempotent=True, timeout=None)
    async def climb(name: str, steps: int) -> str:
        """Climb, with a rest after the first step until a file of that name is there."""
        for number in range(1, steps + 1):
            effects.add("climbed", name, number)
            report_progress(number, steps, name)
            await asyncio.sleep(0.02)
            while not effects.path.with_name(name).exists():  # noqa: ASYNC110 - of another process
                await asyncio.sleep(0.02)
        return "there"

    return climb


def _deadly(effects: Effects) -> Any:
    @tool(idempotent=True)
    async def die(after: float) -> str:
        """End the process as the kernel does when there is no more memory."""
        effects.add("dies", after)
        await asyncio.sleep(after)
        os._exit(137)

    return die


def only_in(version: str) -> str:
    """A tool like `hold` that this version of the agent alone has."""
    return f"hold_in_{version}" if version else ""


def in_rounds(request: ModelRequest) -> Reply:
    """The model's answer: one round of the message after the other, as if each came alone."""
    messages = list(request.messages)
    last = max((n for n, message in enumerate(messages) if message.role == "user"), default=0)
    rounds = messages[last].content.split(THEN) if messages else []
    done = sum(message.is_assistant for message in messages[last:])
    if len(rounds) > 1 and done > len(rounds):
        return Reply("All of that is done.")  # called again after its answer
    if len(rounds) > 1 and done < len(rounds):
        request = replace(request, messages=[*messages, Message("user", rounds[done])])
    return demo(request)


def agent_of(
    effects: Effects,
    delay: float = 0.0,
    provider: ScriptedProvider | None = None,
    version: str = "",
) -> LlmAgent:
    """The agent alone; each version has a tool and an agent below it that no other has."""
    model = ModelAdapter(provider or ScriptedProvider(rule=in_rounds, delay=delay), "demo")
    below = [LlmAgent(name=f"helper_of_{version}", model=model)] if version else []
    tools = tools_of(effects, version)
    return LlmAgent(name="agent", model=model, tools=tools, sub_agents=[*below])


def loaded(
    store: SqlSessionStore,
    app: str,
    effects: Effects,
    delay: float = 0.0,
    provider: ScriptedProvider | None = None,
    version: str = "",
) -> dict[str, DurableAgent]:
    """The app as a worker loads it."""
    agent, sessions = agent_of(effects, delay, provider, version), SessionServiceAdapter(store)
    runner = AgentRunner(agent, sessions, SqlArtifactService(store), name=app)
    return {app: DurableAgent(runner, store)}
