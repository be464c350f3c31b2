"""The methods by which ADK asks a tool for its declaration, and a toolset for its tools."""

from __future__ import annotations

from typing import Protocol

from google.adk.agents.readonly_context import ReadonlyContext
from google.adk.tools.base_tool import BaseTool
from google.adk.tools.base_toolset import BaseToolset
from google.genai import types

_listed = BaseToolset.get_tools_with_prefix


class ToolFilter(Protocol):
    """Chooses the tools of a toolset that an agent gets."""

    async def __call__(
        self, toolset: BaseToolset, tools: list[BaseTool], context: ReadonlyContext | None
    ) -> list[BaseTool]:
        """The tools that are left."""
        ...


def filter_toolsets(choose: ToolFilter) -> None:
    """Patch ADK: agents get from a toolset what `choose` leaves.

    Model requests and answers to confirmations both take a toolset's tools by this method.
    """

    async def get_tools_with_prefix(
        self: BaseToolset, readonly_context: ReadonlyContext | None = None
    ) -> list[BaseTool]:
        return await choose(self, await _listed(self, readonly_context), readonly_context)

    # Final only says that subclasses do not override it.
    BaseToolset.get_tools_with_prefix = get_tools_with_prefix  # pyright: ignore[reportAttributeAccessIssue]


class UncachedToolset(BaseToolset):
    """A toolset that lists its tools for every agent anew.

    ADK caches once per turn, but the names may differ between the agents of a turn.
    """

    def __init__(self) -> None:
        super().__init__()
        self._use_invocation_cache = False


class DeclaredTool(BaseTool):
    """A tool that declares itself to the model by `declaration`."""

    def declaration(self) -> types.FunctionDeclaration:
        """The declaration; a subclass provides it."""
        raise NotImplementedError

    def _get_declaration(self) -> types.FunctionDeclaration:
        return self.declaration()
