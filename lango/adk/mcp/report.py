"""The report of `lango doctor` on the MCP servers and OpenAPI documents of an app."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass

from google.adk.tools.base_tool import BaseTool
from google.adk.tools.base_toolset import BaseToolset
from google.adk.workflow import BaseNode

from lango.adk.mcp.adk_toolsets import is_adk_mcp, is_mcp
from lango.adk.mcp.names import toolsets_of
from lango.adk.openapi.toolset import OperationToolset
from lango.adk.tools.offered import OfferedTools
from lango.adk.transfers import agents_of
from lango.tools.names import ToolSource

Offer = Callable[[BaseNode], Awaitable[OfferedTools[BaseTool]]]
"""Lists the tools that an agent gets."""


@dataclass(frozen=True, slots=True)
class ServerReport:
    """The tools that an agent gets from one server."""

    kind: ToolSource
    server: str
    agent: str
    tools: tuple[str, ...]
    problems: tuple[str, ...]
    """Tools that are left out or renamed."""
    error: str
    """Why it cannot be reached; empty if it can."""


async def server_reports(root: BaseNode) -> AsyncIterator[ServerReport]:
    """Connect to the servers of every agent under a root, and list their tools."""
    for agent in agents_of(root):
        for toolset in toolsets_of(agent):
            source = _source(toolset)
            if source is None:
                continue
            kind, name, offer = source
            offered = await offer(agent)
            yield ServerReport(
                kind=kind,
                server=name,
                agent=agent.name,
                tools=tuple(tool.name for tool in offered.tools),
                problems=offered.problems,
                error=offered.error,
            )


def _source(toolset: BaseToolset) -> tuple[ToolSource, str, Offer] | None:
    """The kind and name of a toolset's server, and its tools; None for any other toolset."""
    if isinstance(toolset, OperationToolset):
        return "OpenAPI document", toolset.document.name, toolset.offered
    if not is_mcp(toolset) or is_adk_mcp(toolset):
        return None
    from lango.adk.mcp.toolset import ServerToolset  # needs mcp, which is there by now

    return (
        ("MCP server", toolset.server.name, toolset.offered)
        if isinstance(toolset, ServerToolset)
        else None
    )
