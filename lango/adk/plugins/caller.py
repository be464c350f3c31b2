"""Passes the session and turn of each call to lango's models."""

from __future__ import annotations

from typing import Any

from google.adk.agents.callback_context import CallbackContext
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.plugins.base_plugin import BasePlugin
from google.adk.tools.base_tool import BaseTool
from google.adk.tools.tool_context import ToolContext

from lango.adk.models.caller import note_caller, note_tool


class CallerPlugin(BasePlugin):
    """Passes the caller to lango's models, for their records and their token calibration.

    Without it a model works too, with the plain token estimate.
    """

    def __init__(self, name: str = "lango_caller") -> None:
        super().__init__(name)

    async def before_model_callback(
        self, *, callback_context: CallbackContext, llm_request: LlmRequest
    ) -> LlmResponse | None:
        """Note the caller for the next call."""
        note_caller(callback_context, llm_request)
        return None

    async def before_tool_callback(
        self, *, tool: BaseTool, tool_args: dict[str, Any], tool_context: ToolContext
    ) -> dict[str, Any] | None:
        """Note the tool's turn: the calls of an agent that it runs belong to that turn."""
        del tool, tool_args
        note_tool(tool_context)
        return None
