"""Progress notifications of MCP servers as the progress of their tools' calls."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from google.adk.tools.base_tool import BaseTool

from lango.tools.progress import reporter

if TYPE_CHECKING:
    from google.adk.tools.mcp_tool.mcp_tool import McpTool

_MCP_TOOL: Final = "google.adk.tools.mcp_tool.mcp_tool"


class ProgressCallback(Protocol):
    """Takes a server's notification."""

    async def __call__(self, progress: float, total: float | None, message: str | None) -> None:
        """Take it."""
        ...


def progress_callback(tool_name: str, **context: Any) -> ProgressCallback | None:
    """Called by ADK in the task of a call; None, outside a durable turn, asks for no progress.

    The notifications come in the task of the connection, so the reporter is looked up here.
    """
    del tool_name, context
    running = reporter.get()
    if running is None:
        return None

    async def report(progress: float, total: float | None, message: str | None) -> None:
        running.report(progress, total, message or "")

    return report


def report_progress_of(tool: BaseTool) -> None:
    """Let a tool of ADK's own MCP toolset report, unless it has a callback of its own."""
    loaded: Any = sys.modules.get(_MCP_TOOL)
    if loaded is not None and isinstance(tool, loaded.McpTool):
        from lango.adk.compat.mcp import set_progress_callback  # needs mcp, which is there by now

        set_progress_callback(cast("McpTool", tool), progress_callback)
