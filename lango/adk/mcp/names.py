"""The tool names that an agent already uses when its MCP servers' tools are named."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from google.adk.agents.readonly_context import ReadonlyContext
from google.adk.tools.base_toolset import BaseToolset
from google.adk.workflow import BaseNode

from lango.adk.tools.adapter import tool_name


def toolsets_of(agent: BaseNode | None) -> list[BaseToolset]:
    """The toolsets of an agent, in its order."""
    return [tool for tool in tools_of(agent) if isinstance(tool, BaseToolset)]


def own_names(agent: BaseNode | None) -> set[str]:
    """The names of the tools that belong to no toolset."""
    return {name for tool in tools_of(agent) if (name := tool_name(tool))}


async def toolset_names(
    toolsets: Iterable[BaseToolset], context: ReadonlyContext | None
) -> set[str]:
    """The names of the tools in toolsets; one that fails has none, as in ADK."""
    listed = await asyncio.gather(
        *(toolset.get_tools_with_prefix(context) for toolset in toolsets), return_exceptions=True
    )
    return {tool.name for tools in listed if not isinstance(tools, BaseException) for tool in tools}


def tools_of(agent: BaseNode | None) -> list[Any]:
    return list(getattr(agent, "tools", ()))
