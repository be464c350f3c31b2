"""The tools that an agent gets from a server, and the note that they are missing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from google.adk.models.llm_request import LlmRequest
from google.adk.tools.base_tool import BaseTool
from google.adk.tools.tool_context import ToolContext

ToolT = TypeVar("ToolT", bound=BaseTool, covariant=True)


@dataclass(frozen=True, slots=True)
class OfferedTools(Generic[ToolT]):
    """The tools that an agent gets from a server, and the problems to report."""

    tools: tuple[ToolT, ...]
    problems: tuple[str, ...]
    error: str = ""


class UnreachableNote(BaseTool):
    """A note, not a callable tool: tells the model that a server's tools are missing."""

    def __init__(self, server: str, kind: str) -> None:
        super().__init__(name=f"{server}_unreachable", description="")
        self._note = (
            f"The tools of the {kind} {server!r} cannot be reached at the moment. "
            "If the answer needs them, say so."
        )

    async def process_llm_request(
        self, *, tool_context: ToolContext, llm_request: LlmRequest
    ) -> None:
        """Add the note to the instruction."""
        del tool_context
        llm_request.append_instructions([self._note])
