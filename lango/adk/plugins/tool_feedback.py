"""A tool that fails is the model's to deal with, not the end of the turn."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from google.adk.plugins.base_plugin import BasePlugin
from google.adk.tools.base_tool import BaseTool
from google.adk.tools.tool_context import ToolContext

from lango.adk.feedback import feedback


class ToolFeedbackPlugin(BasePlugin):
    """Answers a call whose tool raised with a short, safe error; the trace is in the log.

    A tool that was never declared is answered by ADK itself, with the names of those that were.
    """

    def __init__(self, name: str = "lango_tool_feedback") -> None:
        super().__init__(name)

    async def on_tool_error_callback(
        self,
        *,
        tool: BaseTool,
        tool_args: dict[str, Any],
        tool_context: ToolContext,
        error: Exception,
    ) -> dict[str, Any] | None:
        """The answer in the tool's place."""
        del tool_args, tool_context
        # ADK tells of these too, for cleaning up.
        cancelled = isinstance(cast(object, error), asyncio.CancelledError)
        if cancelled or _is_stand_in(tool):
            return None
        return feedback(error, tool.name)


def _is_stand_in(tool: BaseTool) -> bool:
    """Whether ADK made this up for a name that no tool has."""
    return type(tool) is BaseTool
