"""The method by which ADK asks a tool for its declaration."""

from __future__ import annotations

from google.adk.tools.base_tool import BaseTool
from google.genai import types


class DeclaredTool(BaseTool):
    """A tool that declares itself to the model by `declaration`."""

    def declaration(self) -> types.FunctionDeclaration:
        """The declaration; a subclass provides it."""
        raise NotImplementedError

    def _get_declaration(self) -> types.FunctionDeclaration:
        return self.declaration()
