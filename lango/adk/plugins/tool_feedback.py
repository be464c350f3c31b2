"""Reports a failed tool to the model instead of ending the turn."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from google.adk.plugins.base_plugin import BasePlugin
from google.adk.tools.base_tool import BaseTool
from google.adk.tools.tool_context import ToolContext

from lango.adk.tools.feedback import feedback
from lango.errors import CredentialsDisabledError


class ToolFeedbackPlugin(BasePlugin):
    """Answers a call whose tool raised with a short, safe error; the traceback is in the log.

    ADK itself answers a call of an undeclared tool, with the names of the declared ones.
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
        """The response in place of the tool's."""
        del tool_args, tool_context
        # ADK reports cancellations too, for clean-up.
        cancelled = isinstance(cast(object, error), asyncio.CancelledError)
        is_disabled = isinstance(error, CredentialsDisabledError)  # for the operator, not the model
        if cancelled or is_disabled or _is_stand_in(tool):
            return None
        return feedback(error, tool.name)


def _is_stand_in(tool: BaseTool) -> bool:
    """Whether ADK created this tool for an unknown name."""
    return type(tool) is BaseTool
