"""Who a model is called for, told to the model."""

from __future__ import annotations

from typing import Any

from google.adk.agents.callback_context import CallbackContext
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.plugins.base_plugin import BasePlugin
from google.adk.tools.base_tool import BaseTool
from google.adk.tools.tool_context import ToolContext

from lango.adk.calls import note_caller, note_tool


class CallerPlugin(BasePlugin):
    """Tells our models who calls: their records name session and turn, and they learn from each.

    Without it a model works all the same, with the plain token estimate.
    """

    def __init__(self, name: str = "lango_caller") -> None:
        super().__init__(name)

    async def before_model_callback(
        self, *, callback_context: CallbackContext, llm_request: LlmRequest
    ) -> LlmResponse | None:
        """Note the caller for the call that follows."""
        note_caller(callback_context, llm_request)
        return None

    async def before_tool_callback(
        self, *, tool: BaseTool, tool_args: dict[str, Any], tool_context: ToolContext
    ) -> dict[str, Any] | None:
        """Note whose tool it is: an agent that it runs calls in the same turn's name."""
        del tool, tool_args
        note_tool(tool_context)
        return None
