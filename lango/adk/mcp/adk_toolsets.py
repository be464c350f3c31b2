"""ADK's own MCP toolsets: none of their tools replaces another tool of the agent.

ADK lets the later tool of a name win. So a server could list the name of a tool that asks a person
first, and run in its place.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from functools import cache
from typing import Any, Final

from google.adk.agents.readonly_context import ReadonlyContext
from google.adk.tools.base_tool import BaseTool
from google.adk.tools.base_toolset import BaseToolset
from google.adk.workflow import BaseNode

from lango.adk.compat.contexts import agent_of
from lango.adk.compat.tools import filter_toolsets
from lango.adk.mcp.names import own_names, toolset_names, toolsets_of

logger = logging.getLogger(__name__)

TAKEN: Final = (
    "lists {}: left out, because another tool of the agent has the name. Set `tool_name_prefix` of "
    "its McpToolset."
)
_MCP_TOOLSETS: Final = "google.adk.tools.mcp_tool.mcp_toolset"


def install_filter() -> None:
    """Patch ADK's toolsets (idempotent)."""
    filter_toolsets(_free_tools)


def is_adk_mcp(toolset: object) -> bool:
    """Whether this is ADK's own MCP toolset. lango's gives its tools names that are free."""
    if not is_mcp(toolset):
        return False
    from lango.adk.compat.mcp import ConnectedToolset  # needs mcp, which is there by now

    return not isinstance(toolset, ConnectedToolset)


def is_mcp(toolset: object) -> bool:
    """Whether this is an MCP toolset, ADK's or lango's."""
    loaded: Any = sys.modules.get(_MCP_TOOLSETS)
    return loaded is not None and isinstance(toolset, loaded.McpToolset)


async def taken_names(
    toolset: BaseToolset,
    tools: Sequence[BaseTool],
    agent: BaseNode | None,
    context: ReadonlyContext | None = None,
) -> list[str]:
    """The names of a toolset's tools that the agent's other tools have.

    These are the agent's own tools, those of toolsets for other things, and those of MCP servers
    that come before.
    """
    toolsets, names = toolsets_of(agent), own_names(agent)
    if toolset in toolsets:
        before = toolsets[: toolsets.index(toolset)]
        other_toolsets = [candidate for candidate in toolsets if not is_mcp(candidate)]
        names |= await toolset_names([*other_toolsets, *filter(is_adk_mcp, before)], context)
    return sorted(names & {tool.name for tool in tools})


async def _free_tools(
    toolset: BaseToolset, tools: list[BaseTool], context: ReadonlyContext | None
) -> list[BaseTool]:
    if not is_adk_mcp(toolset):
        return tools
    agent = agent_of(context)
    used_names = await taken_names(toolset, tools, agent, context)
    for name in used_names:
        _warn_once(agent.name if agent else "", name)
    return [tool for tool in tools if tool.name not in used_names]


@cache
def _warn_once(agent: str, name: str) -> None:
    """Log a name that is taken, once and not for every model call."""
    logger.warning("An MCP server of %s %s", agent, TAKEN.format(repr(name)))
