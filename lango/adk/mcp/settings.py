"""Configures an MCP server: how to reach it, and which of its tools an agent may use."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from lango.core.extras import install
from lango.errors import InvalidToolError, MissingExtraError

if TYPE_CHECKING:
    from google.adk.tools.base_toolset import BaseToolset

DEFAULT_TIMEOUT: Final = 30.0


@dataclass(frozen=True, slots=True)
class McpServer:
    """A server that a command starts, or that is reached at a URL."""

    name: str
    """Its name in logs and for models."""
    command: tuple[str, ...] | None = None
    """The program and its arguments; it speaks MCP on its standard input and output."""
    env: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    """Added to the few harmless variables the program gets; it inherits no others."""
    cwd: str | Path | None = None
    url: str | None = None
    """Its endpoint for MCP over streamable HTTP."""
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    tools: tuple[str, ...] | None = None
    """The only tools to offer, by the server's names; None for all of them."""
    require_confirmation: bool | tuple[str, ...] = False
    """Whether a person must approve a call: of every tool, or of these."""
    timeout: float = DEFAULT_TIMEOUT
    """Seconds for connecting and listing, and seconds for each call, connecting included."""
    prefix: str = ""
    """Prepended to the tools' names, with an underscore."""

    def __post_init__(self) -> None:
        """Raise InvalidToolError now for settings that would fail during a conversation."""
        problem = next(self._problems(), None)
        if problem:
            raise InvalidToolError(f"The MCP server {self.name!r} {problem}")

    def _problems(self) -> Iterator[str]:
        if not self.name:
            yield "needs a name."
        if bool(self.command) == bool(self.url):
            yield "needs either a command that starts it or a url to reach it at."
        if self.url and urlsplit(self.url).scheme not in {"http", "https"}:
            yield "has a url that begins with neither http:// nor https://."
        if self.url and (self.env or self.cwd):
            yield "has a url: env and cwd are for servers that a command starts."
        if self.command and self.headers:
            yield "has a command: headers are for servers that are reached at a url."
        if not self.timeout > 0:
            yield f"has a timeout of {self.timeout}: give seconds above 0."

    def requires_confirmation(self, tool: str) -> bool:
        """Whether a person must approve calls of this tool."""
        return (
            self.require_confirmation
            if isinstance(self.require_confirmation, bool)
            else tool in self.require_confirmation
        )

    def offers(self, tool: str) -> bool:
        """Whether an agent may use this tool."""
        return self.tools is None or tool in self.tools


def mcp_toolset(server: McpServer) -> BaseToolset:
    """The server's tools for an agent; ADK's Runner closes them, or you await `close()`.

    It starts and connects in the first turn.
    """
    try:
        from lango.adk.mcp.toolset import ServerToolset
    except ImportError as error:
        raise MissingExtraError(
            f"The MCP server {server.name!r} needs an SDK: {install('mcp')}"
        ) from error
    return ServerToolset(server)
