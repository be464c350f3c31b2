"""Real MCP servers in processes of their own, a Runner that uses them, and what is left."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.apps.app import App
from google.adk.events.event import Event
from google.adk.runners import Runner
from google.adk.sessions.base_session_service import BaseSessionService
from google.adk.tools.base_toolset import BaseToolset
from google.genai import types

from faults.database.own_cluster import free_port
from lango.adk.mcp.settings import McpServer
from lango.adk.models.adapter import ModelAdapter
from lango.adk.tools.adapter import as_adk_tools
from lango.core.messages.messages import ToolCall
from lango.testing import Reply, ScriptedProvider

PROGRAM = Path(__file__).with_name("mcp_server.py")
ROGUE = Path(__file__).with_name("mcp_rogue.py")
CONFIRM = "adk_request_confirmation"


def command(kind: str, program: Path = PROGRAM) -> tuple[str, ...]:
    return sys.executable, str(program), kind


class OnStdio:
    """A server that the toolset starts itself."""

    def __init__(self, notes: Path) -> None:
        self.notes = notes

    async def server(self, **options: Any) -> McpServer:
        """How to start it."""
        options.setdefault("env", {"NOTES": str(self.notes)})
        return McpServer("calc", command("plain"), **options)

    async def kill(self) -> None:
        """End it at once, as a crash does."""
        [pid] = servers()
        os.kill(pid, signal.SIGKILL)

    async def restart(self) -> None:
        """Nothing to do: the toolset starts the server when it needs one."""

    def stop(self) -> None:
        """Nothing to do: the toolset ends the server it started."""


class OnHttp:
    """A server that runs beside the toolset, on a port of its own."""

    def __init__(self, notes: Path) -> None:
        self.notes = notes
        self._port = free_port()
        self._start()

    async def server(self, **options: Any) -> McpServer:
        """Where it is."""
        return McpServer("calc", url=f"http://127.0.0.1:{self._port}/mcp", **options)

    async def kill(self) -> None:
        """End it at once, as a crash does."""
        self.stop()

    async def restart(self) -> None:
        """Start it anew, on the same port."""
        await asyncio.to_thread(self._start)

    def stop(self) -> None:
        """End it, if it still runs."""
        self._process.kill()
        self._process.communicate()

    def _start(self) -> None:
        env = {**os.environ, "NOTES": str(self.notes)}
        line = [*command("plain"), str(self._port)]
        self._process = subprocess.Popen(line, stdout=subprocess.PIPE, env=env)
        assert self._process.stdout
        assert self._process.stdout.readline() == b"ready\n"


class McpConversation:
    """An agent that has a server's tools, and a model that follows a script."""

    def __init__(
        self,
        service: BaseSessionService,
        toolset: BaseToolset | None,
        *script: Reply | str,
        tools: Sequence[Any] = (),
        below: Sequence[Any] = (),
    ) -> None:
        """Besides the toolset it has `tools`; an agent below it has the tools `below`."""
        self.model = ScriptedProvider(script)
        model = ModelAdapter(self.model, "demo")
        usable = as_adk_tools([*([toolset] if toolset else []), *tools])
        others = [LlmAgent(name="below", model=model, tools=as_adk_tools(below))] if below else []
        agent = LlmAgent(name="root", model=model, tools=usable, sub_agents=[*others])
        self._runner = Runner(
            app=App(name="app", root_agent=agent),
            session_service=service,
            auto_create_session=True,
        )

    async def say(self, text: str | types.Part, session: str = "session") -> list[Event]:
        """One turn."""
        part = types.Part(text=text) if isinstance(text, str) else text
        run = self._runner.run_async(
            user_id="user",
            session_id=session,
            new_message=types.Content(role="user", parts=[part]),
        )
        async with aclosing(run) as events:
            return [event async for event in events]

    async def listed(self) -> None:
        """Turns until the server's tools are there: it may start slowly."""
        for number in range(20):
            await self.say("hello", f"listed {number}")
            if self.offered:
                return
        raise AssertionError("the tools never came")

    @property
    def told(self) -> list[Any]:
        """What the tools answered, as the model last saw it."""
        return [json.loads(m.content) for m in self.model.requests[-1].messages if m.is_tool]

    @property
    def offered(self) -> list[str]:
        """The tools the model was last offered."""
        return [tool.name for tool in self.model.requests[-1].tools]

    @property
    def instruction(self) -> str:
        """The instruction the model last got."""
        return "".join(m.content for m in self.model.requests[-1].messages if m.role == "system")


def call(tool: str, /, **arguments: Any) -> Reply:
    """The model calls a tool."""
    return Reply(calls=(ToolCall("", tool, input=json.dumps(arguments)),))


def text_of(events: list[Event]) -> str:
    parts = [part for event in events for part in (event.content and event.content.parts) or []]
    return "".join(part.text for part in parts if part.text)


def confirmation(events: list[Event], *, confirmed: bool) -> types.Part:
    """A person's answer to the question the turn ended with."""
    [calls] = [call for event in events for call in event.get_function_calls()][-1:]
    assert calls.name == CONFIRM
    answer = types.FunctionResponse(id=calls.id, name=CONFIRM, response={"confirmed": confirmed})
    return types.Part(function_response=answer)


def _read(path: Path) -> bytes:
    """A file of a thread or a process; empty if that has ended meanwhile."""
    try:
        return path.read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


def children() -> set[int]:
    """The processes this one has."""
    lists = Path(f"/proc/{os.getpid()}/task").glob("*/children")
    return {int(pid) for one in lists for pid in _read(one).split()}


def servers() -> list[int]:
    """Those of them that a toolset has started: our programs, without a port."""
    lines = {pid: _read(Path(f"/proc/{pid}/cmdline")).split(b"\0") for pid in children()}
    ours = {str(PROGRAM).encode(), str(ROGUE).encode()}
    return [pid for pid, line in lines.items() if len(line) == 4 and line[1] in ours]


@dataclass(frozen=True)
class HeldResources:
    """What this process holds on to."""

    tasks: int
    files: int
    children: int

    @classmethod
    def now(cls) -> HeldResources:
        """Count, after what is only garbage has been collected."""
        gc.collect()
        files = len(os.listdir("/proc/self/fd"))
        return cls(len(asyncio.all_tasks()), files, len(children()))

    def is_within(self, other: HeldResources) -> bool:
        """Whether this is no more than another; an earlier test may have let go of something."""
        return all(own <= theirs for own, theirs in zip(astuple(self), astuple(other), strict=True))
