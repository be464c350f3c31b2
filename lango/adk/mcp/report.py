"""The report of `lango doctor` on the MCP servers of an app."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

from google.adk.workflow import BaseNode

from lango.adk.mcp.names import toolsets_of
from lango.adk.transfers import agents_of


@dataclass(frozen=True, slots=True)
class McpReport:
    """The tools that an agent gets from one server."""

    server: str
    agent: str
    tools: tuple[str, ...]
    problems: tuple[str, ...]
    """Tools that are left out or renamed."""
    error: str
    """Why it cannot be reached; empty if it can."""


async def mcp_reports(root: BaseNode) -> AsyncIterator[McpReport]:
    """Connect to the servers of every agent under a root, and list their tools."""
    try:
        from lango.adk.mcp.toolset import ServerToolset
    except ImportError:  # without the SDK no agent can have a server
        return
    for agent in agents_of(root):
        for toolset in toolsets_of(agent):
            if isinstance(toolset, ServerToolset):
                offered = await toolset.offered(agent)
                yield McpReport(
                    server=toolset.server.name,
                    agent=agent.name,
                    tools=tuple(tool.name for tool in offered.tools),
                    problems=offered.problems,
                    error=offered.error,
                )
