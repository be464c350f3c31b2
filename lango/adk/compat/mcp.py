"""ADK's MCP toolset, tools and connections, with public hooks in place of private methods."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeVar

from google.adk.auth.auth_credential import AuthCredential
from google.adk.tools.mcp_tool.mcp_session_manager import (
    MCPSessionManager,
    StdioConnectionParams,
    StreamableHTTPConnectionParams,
)
from google.adk.tools.mcp_tool.mcp_tool import McpTool, ProgressCallbackFactory
from google.adk.tools.mcp_tool.mcp_toolset import McpToolset
from google.adk.tools.tool_context import ToolContext
from mcp import ClientSession

Connection = StdioConnectionParams | StreamableHTTPConnectionParams
T = TypeVar("T")


class ConnectedToolset(McpToolset):
    """ADK's toolset on the given connections; it lists its tools for every agent anew."""

    def __init__(self, connection: Connection, sessions: MCPSessionManager) -> None:
        super().__init__(connection_params=connection)
        # ADK caches once per turn, but the names differ between the agents of a turn.
        self._use_invocation_cache = False
        self._mcp_session_manager = sessions

    async def in_session(self, ask: Callable[[ClientSession], Awaitable[T]], failure: str) -> T:
        """Ask the server in a session; ConnectionError with this text if it fails."""
        return await self._execute_with_session(ask, failure)


class HookedTool(McpTool):
    """ADK's tool, whose calls run by `answer`."""

    async def ask_server(
        self, *, args: dict[str, Any], tool_context: ToolContext, credential: AuthCredential
    ) -> dict[str, Any]:
        """Call the tool, as ADK does."""
        return await super()._run_async_impl(
            args=args, tool_context=tool_context, credential=credential
        )

    async def answer(
        self, *, args: dict[str, Any], tool_context: ToolContext, credential: AuthCredential
    ) -> dict[str, Any]:
        """The answer to a call; a subclass adds limits and retries."""
        return await self.ask_server(args=args, tool_context=tool_context, credential=credential)

    async def _run_async_impl(
        self, *, args: dict[str, Any], tool_context: ToolContext, credential: AuthCredential
    ) -> dict[str, Any]:
        return await self.answer(args=args, tool_context=tool_context, credential=credential)


def set_progress_callback(tool: McpTool, callback: ProgressCallbackFactory) -> None:
    """Set the callback for a tool's progress, unless it has one."""
    if tool._progress_callback is None:  # pyright: ignore[reportPrivateUsage]
        tool._progress_callback = callback  # pyright: ignore[reportPrivateUsage]


class HookedSessions(MCPSessionManager):
    """ADK's connections, opened by `hold`."""

    def discard(self, session: ClientSession | None = None) -> None:
        """Drop an unusable connection, unless it is already replaced."""
        self._discard_session(session=session)

    def hold(self, client: AbstractAsyncContextManager[Any]) -> AbstractAsyncContextManager[Any]:
        """The client of a new connection; a subclass may track it."""
        return client

    def _create_client(self, *args: Any, **kwargs: Any) -> AbstractAsyncContextManager[Any]:
        return self.hold(super()._create_client(*args, **kwargs))

    async def _get_mtls_transport(self) -> None:
        """None: a server gets only its own headers, and Google's metadata is not queried."""
