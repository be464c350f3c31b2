"""Answers a transfer to an invalid agent with an error instead of ending the turn."""

from __future__ import annotations

from typing import Any, Final

from google.adk.agents import BaseAgent
from google.adk.plugins.base_plugin import BasePlugin
from google.adk.tools.base_tool import BaseTool
from google.adk.tools.function_tool import FunctionTool
from google.adk.tools.tool_context import ToolContext
from google.adk.tools.transfer_to_agent_tool import transfer_to_agent

from lango.adk.transfers import transfer_targets

_TARGET: Final = "agent_name"
_SHOWN: Final = 80  # characters of a name that a model invented


class TransferGuardPlugin(BasePlugin):
    """Answers a transfer to an invalid agent with the names of the valid ones.

    The model continues in the same run, and no transfer is stored. Names must match exactly,
    including case and spaces.
    """

    def __init__(self, name: str = "lango_transfer_guard") -> None:
        super().__init__(name)

    async def before_tool_callback(
        self, *, tool: BaseTool, tool_args: dict[str, Any], tool_context: ToolContext
    ) -> dict[str, Any] | None:
        """Answer in the tool's place if the target is not valid."""
        if not _is_transfer(tool):
            return None
        agent = tool_context.get_invocation_context().agent
        valid = transfer_targets(agent) if isinstance(agent, BaseAgent) else []
        target = tool_args.get(_TARGET)
        return None if target in valid else {"error": refusal(target, valid)}


def refusal(target: Any, valid: list[str]) -> str:
    """The error text for the model."""
    if not valid:
        return "There is no agent to transfer to. Answer yourself."
    problem = (
        f'"{target[:_SHOWN]}" is none of them' if isinstance(target, str) else "none was named"
    )
    return (
        f"Not transferred. Valid agents: {', '.join(valid)}; {problem}. "
        "Transfer to one of these, named exactly as it is written here, or answer yourself."
    )


def _is_transfer(tool: BaseTool) -> bool:
    return isinstance(tool, FunctionTool) and tool.func is transfer_to_agent
