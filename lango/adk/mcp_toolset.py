"""ADK's MCP toolset, with limits on time, servers that come back, and nothing left behind."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Generator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final, TextIO, cast

from google.adk.agents.readonly_context import ReadonlyContext
from google.adk.auth.auth_credential import AuthCredential
from google.adk.models.llm_request import LlmRequest
from google.adk.tools.base_tool import BaseTool
from google.adk.tools.mcp_tool.mcp_session_manager import (
    MCPSessionManager,
    StdioConnectionParams,
    StreamableHTTPConnectionParams,
    create_mcp_http_client,
)
from google.adk.tools.mcp_tool.mcp_tool import McpTool
from google.adk.tools.mcp_tool.mcp_toolset import McpToolset
from google.adk.tools.tool_context import ToolContext
from mcp import ClientSession, MCPError, StdioServerParameters
from mcp.types import CONNECTION_CLOSED

from lango.adk.feedback import feedback
from lango.adk.mcp import McpServer
from lango.adk.mcp_stderr import LogPipe
from lango.core.values import JsonObject
from lango.errors import InvalidToolError, ToolError, ToolTimeoutError
from lango.tools.schema import check_arguments, check_parameters

logger = logging.getLogger(__name__)

SESSION_HEADER: Final = "mcp-session-id"

CLOSING: Final = 8.0
"""Seconds to close a connection: a program that ignores the end of its input is killed in 7."""

Connection = StdioConnectionParams | StreamableHTTPConnectionParams


@dataclass(slots=True)
class Asking:
    """One listing or call, while it runs."""

    session: ClientSession | None = None
    is_refused: bool = False
    """The server knows nothing of the session, as after a restart: it did not look further."""


_asking: ContextVar[Asking | None] = ContextVar("asking", default=None)


class ServerToolset(McpToolset):
    """The tools of one server; one that cannot be reached costs its tools, never the turn."""

    def __init__(self, server: McpServer) -> None:
        self._server = server
        self._stderr = LogPipe(server.name)
        self._known: list[BaseTool] = []
        self._complaints: set[str] = set()
        connection = _connection(server)
        super().__init__(
            connection_params=connection,
            tool_name_prefix=server.prefix or None,
        )
        self._sessions = self._mcp_session_manager = Sessions(connection, self._stderr)

    async def get_tools(self, readonly_context: ReadonlyContext | None = None) -> list[BaseTool]:
        """The tools as the server lists them now, else as it listed them last and a note."""
        limit = asyncio.timeout(self._server.timeout)
        try:
            async with limit:
                with _ask():
                    # A failure is tried once more by ADK, with another session if need be.
                    listed = await super().get_tools(readonly_context)
        except OSError as error:
            if limit.expired():
                # It hangs, so that asking it again is no use: the next turn begins with a new one.
                self._sessions.discard()
            reason = error if str(error) else f"no answer within {self._server.timeout:g} s"
            logger.warning(
                "MCP server %r did not list its tools; the turn goes on: %s",
                *(self._server.name, reason),
            )
            return [*self._known, UnreachableNote(self._server)]
        self._known = [
            ServerTool(tool, self._sessions, self._server)
            for tool in cast("list[McpTool]", listed)
            if self._server.offers(tool.name) and self._is_usable(tool)
        ]
        self._check_names({tool.name for tool in listed})
        return self._known

    def _is_usable(self, tool: McpTool) -> bool:
        """A schema that is none would have the provider refuse the whole request."""
        try:
            check_parameters(tool.name, _parameters(tool))
        except InvalidToolError as error:
            self._complain(f"offers a tool that cannot be used and is left out. {error}")
            return False
        return True

    def _check_names(self, listed: set[str]) -> None:
        """A misspelt name would else be a tool that is missing, or one that nobody is asked of."""
        dangerous = () if isinstance(self._server.dangerous, bool) else self._server.dangerous
        for name in {*(self._server.tools or ()), *dangerous} - listed:
            self._complain(f"has no tool {name!r}; there are: {', '.join(sorted(listed))}.")

    def _complain(self, text: str) -> None:
        """Once, not in every turn."""
        if text not in self._complaints:
            self._complaints.add(text)
            logger.warning("MCP server %r %s", self._server.name, text)

    async def close(self) -> None:
        """End the program or the connection; the next turn would make a new one."""
        await super().close()
        self._stderr.close()


class ServerTool(McpTool):
    """A tool of a server: checked before it is called, limited in time, its failures told."""

    def __init__(self, tool: McpTool, sessions: Sessions, server: McpServer) -> None:
        super().__init__(
            mcp_tool=tool.raw_mcp_tool,
            mcp_session_manager=sessions,
            require_confirmation=server.is_dangerous(tool.name),
        )
        self._server = server

    async def _run_async_impl(
        self, *, args: JsonObject, tool_context: ToolContext, credential: AuthCredential
    ) -> dict[str, Any]:
        limit = asyncio.timeout(self._server.timeout)
        try:
            arguments = check_arguments(_parameters(self), args)
            async with limit:
                return await self._call(
                    args=arguments, tool_context=tool_context, credential=credential
                )
        except Exception as error:  # noqa: BLE001 - a failed call is an answer for the model
            return feedback(self._explained(error, late=limit.expired()), self.name)

    async def _call(self, **call: Any) -> dict[str, Any]:
        with _ask() as asking:
            try:
                return await super()._run_async_impl(**call)
            except MCPError:
                if not asking.is_refused:
                    raise
            # Safe, for nothing was done; and with another session.
            return await super()._run_async_impl(**call)

    def _explained(self, error: Exception, *, late: bool) -> Exception:
        """The error in words for the model, where there are any."""
        told = error
        if late:
            told = ToolTimeoutError(
                f"{self.name} gave no answer within {self._server.timeout:g} seconds. "
                "It may have been done or not."
            )
        elif isinstance(error, MCPError) and error.code != CONNECTION_CLOSED:
            told = ToolError(f"{self.name} was refused: {error.message}")
        elif isinstance(error, MCPError | ConnectionError):
            told = ToolError(
                f"The server of {self.name} cannot be reached, or broke off during the call. "
                "It may have been done or not."
            )
        told.__cause__ = error if told is not error else error.__cause__
        return told


class UnreachableNote(BaseTool):
    """No tool to call: it tells the model of a server whose tools are missing in this turn."""

    def __init__(self, server: McpServer) -> None:
        super().__init__(name=f"{server.name}_unreachable", description="")
        self._note = (
            f"The tools of the MCP server {server.name!r} cannot be reached at the moment. "
            "If the answer needs them, say so."
        )

    async def process_llm_request(
        self, *, tool_context: ToolContext, llm_request: LlmRequest
    ) -> None:
        """Add the note to the instruction."""
        del tool_context
        llm_request.append_instructions([self._note])


class Sessions(MCPSessionManager):
    """ADK's connections, none of which outlives `close()`, whoever was cancelled meanwhile."""

    def __init__(self, connection: Connection, stderr: LogPipe) -> None:
        # A process is given a file descriptor, and asks nothing else of it.
        super().__init__(connection, errlog=cast("TextIO", stderr))
        self._connecting: asyncio.Task[ClientSession] | None = None
        self._open: set[asyncio.Task[Any]] = set()

    async def create_session(self, headers: dict[str, str] | None = None) -> ClientSession:
        """The connection, made once for all who wait for it.

        A turn that is cancelled or out of time leaves it being made: to stop half way would
        leave a program that nobody ends, and the next turn finds a slow server ready.
        """
        asking = _asking.get() or Asking()
        if asking.is_refused:
            self.discard(asking.session)
            asking.is_refused = False
        if self._connecting is None or self._connecting.done():
            self._connecting = asyncio.create_task(super().create_session(headers))
            self._connecting.add_done_callback(_seen)
        asking.session = session = await asyncio.shield(self._connecting)
        return session

    def discard(self, session: ClientSession | None = None) -> None:
        """Let go of a connection that is of no use, unless it was replaced already."""
        self._discard_session(session=session)

    async def close(self) -> None:
        """End every connection, also those still being made or unmade."""
        if self._connecting is not None:
            self._connecting.cancel()
            await asyncio.wait([self._connecting])
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSING):
                await super().close()
        for task in self._open:
            # Twice would stop the killing of a program half way.
            if not task.cancelling():
                task.cancel()
        if self._open:
            await asyncio.wait(self._open, timeout=CLOSING)

    def _create_client(self, *args: Any, **kwargs: Any) -> AbstractAsyncContextManager[Any]:
        return self._held(super()._create_client(*args, **kwargs))

    @asynccontextmanager
    async def _held(self, client: AbstractAsyncContextManager[Any]) -> AsyncGenerator[Any]:
        """Know the task a connection lives in: ADK forgets one that was too slow to connect."""
        task = cast("asyncio.Task[Any]", asyncio.current_task())
        self._open.add(task)
        task.add_done_callback(self._open.discard)
        async with client as streams:
            yield streams

    async def _get_mtls_transport(self) -> None:
        """None: a server is sent the headers it was given, and Google's metadata is not asked."""


def _connection(server: McpServer) -> Connection:
    # Longer than our own limit, which ends a call in our words, and long enough to close in.
    patience = server.timeout + CLOSING
    if server.command:
        program, *arguments = server.command
        parameters = StdioServerParameters(
            command=program, args=arguments, env=dict(server.env), cwd=server.cwd
        )
        return StdioConnectionParams(server_params=parameters, timeout=patience)
    return StreamableHTTPConnectionParams(
        url=server.url or "",
        headers=dict(server.headers),
        timeout=patience,
        sse_read_timeout=patience,
        httpx_client_factory=_http_client,
    )


def _http_client(headers: Any = None, timeout: Any = None, auth: Any = None) -> Any:
    client = create_mcp_http_client(headers, timeout, auth)
    client.event_hooks["response"].append(_note_refusal)
    return client


async def _note_refusal(response: Any) -> None:
    """404 is what the protocol has for a forgotten session; the texts differ by server."""
    request, asking = response.request, _asking.get()
    in_session = request.method == "POST" and SESSION_HEADER in request.headers
    if asking and in_session and response.status_code == HTTPStatus.NOT_FOUND:
        asking.is_refused = True


@contextmanager
def _ask() -> Generator[Asking]:
    """Whatever is sent from within is known to belong together."""
    token = _asking.set(asking := Asking())
    try:
        yield asking
    finally:
        _asking.reset(token)


def _parameters(tool: McpTool) -> JsonObject:
    return tool.raw_mcp_tool.input_schema


def _seen(task: asyncio.Task[Any]) -> None:
    """Nobody may be waiting any more for a connection that failed."""
    if not task.cancelled():
        task.exception()
