"""ADK's MCP toolset with timeouts and reconnects, which leaves no process running."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Generator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Any, Final, TextIO, TypeVar, cast

from google.adk.agents.readonly_context import ReadonlyContext
from google.adk.auth.auth_credential import AuthCredential
from google.adk.tools.base_tool import BaseTool
from google.adk.tools.mcp_tool import mcp_session_manager
from google.adk.tools.mcp_tool.mcp_session_manager import (
    StdioConnectionParams,
    StreamableHTTPConnectionParams,
    create_mcp_http_client,
)
from google.adk.tools.mcp_tool.mcp_tool import McpTool
from google.adk.tools.tool_context import ToolContext
from google.adk.workflow import BaseNode
from mcp import ClientSession, MCPError, StdioServerParameters, types
from mcp.types import CONNECTION_CLOSED

from lango.adk.compat.contexts import agent_of
from lango.adk.compat.mcp import ConnectedToolset, Connection, HookedSessions, HookedTool
from lango.adk.mcp.names import own_names, toolset_names, toolsets_of
from lango.adk.mcp.progress import progress_callback
from lango.adk.mcp.settings import McpServer
from lango.adk.mcp.stderr import LogPipe
from lango.adk.tools.feedback import feedback
from lango.adk.tools.offered import OfferedTools, UnreachableNote
from lango.core.values import JsonObject
from lango.errors import InvalidToolError, ToolError, ToolTimeoutError
from lango.tools.names import ServerTools, server_tool_names
from lango.tools.schema import check_arguments, check_parameters

logger = logging.getLogger(__name__)

SESSION_HEADER: Final = "mcp-session-id"

NOT_CREATED: Final = "Failed to create MCP session: "
"""The prefix that ADK puts before the reason, more than once."""
CLOSING: Final = 8.0
"""Seconds to close a connection: a program that ignores the end of its input is killed after 7."""

Method = TypeVar("Method", bound=Callable[..., Any])


def _retried(method: Method) -> Method:
    """ADK's own retry, which has no types."""
    return cast("Any", mcp_session_manager).retry_on_errors(method)


@dataclass(slots=True)
class PendingRequest:
    """One running listing or call."""

    session: ClientSession | None = None
    is_refused: bool = False
    """The server does not know the session, as after a restart, and did nothing."""


_asking: ContextVar[PendingRequest | None] = ContextVar("asking", default=None)


@dataclass(frozen=True, slots=True)
class ListedTools:
    """The tools that a server lists and its agents may use."""

    tools: tuple[types.Tool, ...] = ()
    problems: tuple[str, ...] = ()
    error: str = ""
    """Why the server could not be reached; the other fields are then its last listing."""


class ServerToolset(ConnectedToolset):
    """The tools of one server; if it cannot be reached, the turn runs without them."""

    def __init__(self, server: McpServer) -> None:
        self.server = server
        self._stderr = LogPipe(server.name)
        self._listed = ListedTools()
        self._listed_in: str | None = None
        self._listing: asyncio.Task[ListedTools] | None = None
        self._complaints: set[str] = set()
        connection = _connection(server)
        self._sessions = Sessions(connection, self._stderr)
        super().__init__(connection, self._sessions)

    async def get_tools(self, readonly_context: ReadonlyContext | None = None) -> list[BaseTool]:
        """The tools that the server lists now; if unreachable, its last listing and a note."""
        offered = await self.offered(agent_of(readonly_context), readonly_context)
        for problem in offered.problems:
            self._log_once(problem)
        note = [UnreachableNote(self.server.name, "MCP server")] if offered.error else []
        return [*offered.tools, *note]

    async def offered(
        self, agent: BaseNode | None, context: ReadonlyContext | None = None
    ) -> OfferedTools[ServerTool]:
        """The tools, with names that are unique in the agent."""
        turn = context.invocation_id if context else None
        toolsets = [toolset for toolset in toolsets_of(agent) if isinstance(toolset, ServerToolset)]
        servers = [self, *(toolset for toolset in toolsets if toolset is not self)]
        listed = await asyncio.gather(*(server.listed(turn) for server in servers))
        listings = [server.listing(tools) for server, tools in zip(servers, listed, strict=True)]
        names, *_ = server_tool_names(listings, await self._own_names(agent, context))
        server_tools, *_ = listed
        pairs = zip(server_tools.tools, names, strict=True)
        tools = (
            ServerTool(tool, name.name, self._sessions, self.server)
            for tool, name in pairs
            if name.name is not None
        )
        problems = (*server_tools.problems, *(name.problem for name in names if name.problem))
        return OfferedTools(tuple(tools), problems, server_tools.error)

    async def _own_names(self, agent: BaseNode | None, context: ReadonlyContext | None) -> set[str]:
        """The names of the agent's tools that are not from MCP servers.

        A toolset that is wrapped in one of the agent's does not query that one: it would recurse.
        """
        toolsets = toolsets_of(agent)
        other_toolsets = [toolset for toolset in toolsets if not isinstance(toolset, ServerToolset)]
        names = own_names(agent)
        return names | await toolset_names(other_toolsets, context) if self in toolsets else names

    async def listed(self, turn: str | None) -> ListedTools:
        """The server's listing, fetched once per turn and shared by concurrent callers."""
        if turn is None or self._listed_in != turn:
            if self._listing is None or self._listing.done():
                self._listing = asyncio.create_task(self._list())
                self._listing.add_done_callback(_seen)
            # A cancelled turn must not cancel the listing for other waiters.
            self._listed = await asyncio.shield(self._listing)
            self._listed_in = turn
        return self._listed

    def listing(self, listed: ListedTools) -> ServerTools:
        """The listed names, from which `server_tool_names` makes unique ones."""
        names = tuple(tool.name for tool in listed.tools)
        return ServerTools(self.server.name, names, self.server.prefix)

    async def _list(self) -> ListedTools:
        limit = asyncio.timeout(self.server.timeout)
        try:
            async with limit:
                with _ask():
                    tools = await self._fetch()
        except OSError as error:
            if limit.expired():
                # It hangs: the next turn opens a new connection.
                self._sessions.discard()
            late = f"no answer within {self.server.timeout:g} s"
            reason = str(error).replace(NOT_CREATED, "") or late
            logger.warning(
                "MCP server %r cannot be reached, the turn runs without its tools: %s. `lango "
                "doctor` tries it again.",
                *(self.server.name, reason),
            )
            return replace(self._listed, error=reason)
        return self._usable(tools)

    @_retried
    async def _fetch(self) -> list[types.Tool]:
        """List the tools; retry a failure once, with a new session if needed."""
        listed = await self.in_session(
            lambda session: session.list_tools(), "Failed to list the tools"
        )
        # Sorted: a changed order would invalidate the model's prompt cache.
        return sorted(listed.tools, key=lambda tool: tool.name)

    def _usable(self, tools: list[types.Tool]) -> ListedTools:
        """The allowed tools with a valid schema, and the problems of the others."""
        usable: list[types.Tool] = []
        problems = list(self._unknown_names({tool.name for tool in tools}))
        for tool in tools:
            if self.server.offers(tool.name):
                try:
                    # With an invalid schema, the provider would refuse the whole request.
                    check_parameters(tool.name, tool.input_schema)
                    usable.append(tool)
                except InvalidToolError as error:
                    problems.append(f"offers a tool that cannot be used and is left out. {error}")
        return ListedTools(tuple(usable), tuple(problems))

    def _unknown_names(self, listed: set[str]) -> Iterator[str]:
        """Configured names that the server lacks: else a tool is missing, or needs no approval."""
        require_confirmation = (
            ()
            if isinstance(self.server.require_confirmation, bool)
            else self.server.require_confirmation
        )
        for name in sorted({*(self.server.tools or ()), *require_confirmation} - listed):
            yield f"has no tool {name!r}; there are: {', '.join(sorted(listed))}."

    def _log_once(self, text: str) -> None:
        """Log a problem once, not in every turn."""
        if text not in self._complaints:
            self._complaints.add(text)
            logger.warning("MCP server %r %s", self.server.name, text)

    async def close(self) -> None:
        """End the program or the connection; the next turn would open a new one."""
        if self._listing is not None:
            self._listing.cancel()
            await asyncio.wait([self._listing])
        await super().close()
        self._stderr.close()


class ServerTool(HookedTool):
    """A tool of a server: arguments checked, time limited, failures returned to the model."""

    def __init__(self, tool: types.Tool, name: str, sessions: Sessions, server: McpServer) -> None:
        super().__init__(
            mcp_tool=tool,
            mcp_session_manager=sessions,
            require_confirmation=server.requires_confirmation(tool.name),
            progress_callback=progress_callback,
        )
        self.name = name
        self._server = server

    async def answer(
        self, *, args: JsonObject, tool_context: ToolContext, credential: AuthCredential
    ) -> dict[str, Any]:
        """The tool's result, or an error for the model."""
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
                return await self.ask_server(**call)
            except MCPError:
                if not asking.is_refused:
                    raise
            # Safe to retry: the server did nothing. Uses a new session.
            return await self.ask_server(**call)

    def _explained(self, error: Exception, *, late: bool) -> Exception:
        """The error with a text for the model, where possible."""
        explained = error
        if late:
            explained = ToolTimeoutError(
                f"{self.name} gave no answer within {self._server.timeout:g} seconds. "
                "It may have been done or not."
            )
        elif isinstance(error, MCPError) and error.code != CONNECTION_CLOSED:
            explained = ToolError(f"{self.name} was refused: {error.message}")
        elif isinstance(error, MCPError | ConnectionError):
            explained = ToolError(
                f"The server of {self.name} cannot be reached, or broke off during the call. "
                "It may have been done or not."
            )
        explained.__cause__ = error if explained is not error else error.__cause__
        return explained


class Sessions(HookedSessions):
    """ADK's connections; `close()` ends all of them, even after cancellations."""

    def __init__(self, connection: Connection, stderr: LogPipe) -> None:
        # A process needs only its file descriptor.
        super().__init__(connection, errlog=cast("TextIO", stderr))
        self._connecting: asyncio.Task[ClientSession] | None = None
        self._open: set[asyncio.Task[Any]] = set()

    async def create_session(self, headers: dict[str, str] | None = None) -> ClientSession:
        """The connection, opened once for all waiters.

        A cancelled or timed-out turn does not stop the opening: stopping half way would leak a
        process, and the next turn finds a slow server ready.
        """
        asking = _asking.get() or PendingRequest()
        if asking.is_refused:
            self.discard(asking.session)
            asking.is_refused = False
        if self._connecting is None or self._connecting.done():
            self._connecting = asyncio.create_task(super().create_session(headers))
            self._connecting.add_done_callback(_seen)
        asking.session = session = await asyncio.shield(self._connecting)
        return session

    async def close(self) -> None:
        """End every connection, including those that are opening or closing."""
        if self._connecting is not None:
            self._connecting.cancel()
            await asyncio.wait([self._connecting])
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSING):
                await super().close()
        for task in self._open:
            # A second cancel would interrupt the killing of a program.
            if not task.cancelling():
                task.cancel()
        if self._open:
            await asyncio.wait(self._open, timeout=CLOSING)

    @asynccontextmanager
    async def hold(self, client: AbstractAsyncContextManager[Any]) -> AsyncGenerator[Any]:
        """Track the task of a connection: ADK forgets one that was too slow to connect."""
        task = cast("asyncio.Task[Any]", asyncio.current_task())
        self._open.add(task)
        task.add_done_callback(self._open.discard)
        async with client as streams:
            yield streams


def _connection(server: McpServer) -> Connection:
    # Longer than lango's own limit, which ends a call first, and long enough to close.
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
    """Note a 404: the protocol's status for a forgotten session; the texts differ by server."""
    request, asking = response.request, _asking.get()
    in_session = request.method == "POST" and SESSION_HEADER in request.headers
    if asking and in_session and response.status_code == HTTPStatus.NOT_FOUND:
        asking.is_refused = True


@contextmanager
def _ask() -> Generator[PendingRequest]:
    """Requests sent inside share one `PendingRequest`."""
    token = _asking.set(asking := PendingRequest())
    try:
        yield asking
    finally:
        _asking.reset(token)


def _parameters(tool: McpTool) -> JsonObject:
    return tool.raw_mcp_tool.input_schema


def _seen(task: asyncio.Task[Any]) -> None:
    """Retrieve the exception of a task that may have no waiters left."""
    if not task.cancelled():
        task.exception()
