"""Progress notifications of real MCP servers as events of a turn."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
from google.adk.agents import LlmAgent
from google.adk.tools.base_toolset import BaseToolset
from google.adk.tools.mcp_tool.mcp_session_manager import StdioConnectionParams
from google.adk.tools.mcp_tool.mcp_toolset import McpToolset
from mcp import StdioServerParameters

import lango
from lango.adk.durable import progress
from lango.adk.mcp.settings import mcp_toolset
from lango.core.turns.events import ToolFinished, ToolProgress, TurnEvent
from lango.testing import ScriptedProvider
from tests.adk.mcp.mcp_servers import OnHttp, OnStdio, call, command

DEPTH = 4
DUG = [ToolProgress("", "dig", number, DEPTH, f"at {number}") for number in range(1, DEPTH + 1)]


async def _events(toolset: BaseToolset, url: str) -> list[TurnEvent]:
    """A turn that digs once."""
    model = lango.ModelAdapter(ScriptedProvider([call("dig", depth=DEPTH), "done"]), "demo")
    agent = lango.Agent(LlmAgent(name="root", model=model, tools=[toolset]), store=url)
    try:
        return [event async for event in agent.stream("go")]
    finally:
        await agent.close()


def _check(events: list[TurnEvent]) -> None:
    """The progress came in order, before the result."""
    told = [event for event in events if isinstance(event, ToolProgress | ToolFinished)]
    assert isinstance(told[-1], ToolFinished)
    assert told[-1].error is None
    found = [event for event in told if isinstance(event, ToolProgress)]
    assert [(e.name, e.current, e.total, e.text) for e in found] == [
        (e.name, e.current, e.total, e.text) for e in DUG
    ]
    assert {event.call for event in told} == {told[-1].call}


@pytest.fixture(params=[OnStdio, OnHttp])
async def running(
    request: pytest.FixtureRequest, tmp_path: Path
) -> AsyncGenerator[OnStdio | OnHttp]:
    """Either transport in turn."""
    running: OnStdio | OnHttp = request.param(tmp_path / "notes")
    yield running
    running.stop()


@pytest.fixture(autouse=True)
def _every_report(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "INTERVAL", 0.0)
    monkeypatch.setattr(progress, "SHARE", 0.0)


async def test_of_lango_s_toolset(running: OnStdio | OnHttp, sqlite_url: str) -> None:
    _check(await _events(mcp_toolset(await running.server()), sqlite_url))


async def test_of_adk_s_own_toolset(sqlite_url: str) -> None:
    _check(await _events(_of_adk(), sqlite_url))


async def test_a_callback_of_the_app_s_own_is_kept(sqlite_url: str) -> None:
    told: list[float] = []

    async def own(current: float, total: float | None, message: str | None) -> None:
        del total, message
        told.append(current)

    events = await _events(_of_adk(progress_callback=own), sqlite_url)
    assert told == [1, 2, 3, 4]
    assert not any(isinstance(event, ToolProgress) for event in events)


def _of_adk(**options: Any) -> McpToolset:
    program, *arguments = command("plain")
    server = StdioServerParameters(command=program, args=arguments, env={"NOTES": "/dev/null"})
    return McpToolset(
        connection_params=StdioConnectionParams(server_params=server, timeout=60.0), **options
    )
