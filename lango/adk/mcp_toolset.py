"""ADK's MCP toolset, with limits on time, servers that come back, and nothing left behind."""

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
from google.adk.models.llm_request import LlmRequest
from google.adk.tools.base_tool import BaseTool
from google.adk.tools.mcp_tool import mcp_session_manager
from google.adk.tools.mcp_tool.mcp_session_manager import (
    MCPSessionManager,
    StdioConnectionParams,
    StreamableHTTPConnectionParams,
    create_mcp_http_client,
)
from google.adk.tools.mcp_tool.mcp_tool import McpTool
from google.adk.tools.mcp_tool.mcp_toolset import McpToolset
from google.adk.tools.tool_context import ToolContext
from google.adk.workflow import BaseNode
from mcp import ClientSession, MCPError, StdioServerParameters, types
from mcp.types import CONNECTION_CLOSED

from lango.adk.feedback import feedback
from lango.adk.mcp import McpServer
from lango.adk.mcp_names import agent_of, own_names, toolset_names, toolsets_of
from lango.adk.mcp_stderr import LogPipe
from lango.core.tool_names import Listing, server_tool_names
from lango.core.values import JsonObject
from lango.errors import InvalidToolError, ToolError, ToolTimeoutError
from lango.tools.schema import check_arguments, check_parameters

logger = logging.getLogger(__name__)

SESSION_HEADER: Final = "mcp-session-id"

NOT_CREATED: Final = "Failed to create MCP session: "
"""What ADK puts before the reason, more than once."""
CLOSING: Final = 8.0
"""Seconds to close a connection: a program that ignores the end of its input is killed in 7."""

Connection = StdioConnectionParams | StreamableHTTPConnectionParams
Method = TypeVar("Method", bound=Callable[..., Any])


def _retried(method: Method) -> Method:
    """ADK's own second try, for which it has no types."""
    return cast("Any", mcp_session_manager).retry_on_errors(method)


@dataclass(slots=True)
class Asking:
    """One listing or call, while it runs."""

    session: ClientSession | None = None
    is_refused: bool = False
    """The server knows nothing of the session, as after a restart: it did not look further."""


_asking: ContextVar[Asking | None] = ContextVar("asking", default=None)


@dataclass(frozen=True, slots=True)
class Listed:
    """What a server lists, of what its agents may use."""

    tools: tuple[types.Tool, ...] = ()
    problems: tuple[str, ...] = ()
    error: str = ""
    """Why the server could not be reached: the rest is what it listed before."""


@dataclass(frozen=True, slots=True)
class Offered:
    """The tools that an agent gets of a server, and what a person should know about them."""

    tools: tuple[ServerTool, ...]
    problems: tuple[str, ...]
    error: str = ""


class ServerToolset(McpToolset):
    """The tools of one server; one that cannot be reached costs its tools, never the turn."""

    def __init__(self, server: McpServer) -> None:
        self.server = server
        self._stderr = LogPipe(server.name)
        self._known = Listed()
        self._known_in: str | None = None
        self._listing: asyncio.Task[Listed] | None = None
        self._complaints: set[str] = set()
        connection = _connection(server)
        super().__init__(connection_params=connection)
        # ADK's cache is one per turn; the names differ between the agents of a turn.
        self._use_invocation_cache = False
        self._sessions = self._mcp_session_manager = Sessions(connection, self._stderr)

    async def get_tools(self, readonly_context: ReadonlyContext | None = None) -> list[BaseTool]:
        """The tools as the server lists them now, else as it listed them last and a note."""
        offered = await self.offered(agent_of(readonly_context), readonly_context)
        for problem in offered.problems:
            self._complain(problem)
        note = [UnreachableNote(self.server)] if offered.error else []
        return [*offered.tools, *note]

    async def offered(
        self, agent: BaseNode | None, context: ReadonlyContext | None = None
    ) -> Offered:
        """The tools, under names that no other tool of the agent has."""
        turn = context.invocation_id if context else None
        others = [one for one in toolsets_of(agent) if isinstance(one, ServerToolset)]
        servers = [self, *(one for one in others if one is not self)]
        listed = await asyncio.gather(*(server.listed(turn) for server in servers))
        listings = [server.listing(tools) for server, tools in zip(servers, listed, strict=True)]
        named, *_ = server_tool_names(listings, await self._own_names(agent, context))
        own, *_ = listed
        pairs = zip(own.tools, named, strict=True)
        tools = (
            ServerTool(tool, name.name, self._sessions, self.server)
            for tool, name in pairs
            if name.name is not None
        )
        problems = (*own.problems, *(name.problem for name in named if name.problem))
        return Offered(tuple(tools), problems, own.error)

    async def _own_names(self, agent: BaseNode | None, context: ReadonlyContext | None) -> set[str]:
        """The names of the agent's tools that are no MCP server's.

        A toolset that is not the agent's own, but wrapped in one that is, does not ask that one:
        the question would come back.
        """
        toolsets = toolsets_of(agent)
        asked = [one for one in toolsets if not isinstance(one, ServerToolset)]
        names = own_names(agent)
        return names | await toolset_names(asked, context) if self in toolsets else names

    async def listed(self, turn: str | None) -> Listed:
        """What the server lists, asked once in a turn, and once for all who ask at a time."""
        if turn is None or self._known_in != turn:
            if self._listing is None or self._listing.done():
                self._listing = asyncio.create_task(self._list())
                self._listing.add_done_callback(_seen)
            # A turn that is cancelled leaves the listing to the others who wait for it.
            self._known = await asyncio.shield(self._listing)
            self._known_in = turn
        return self._known

    def listing(self, listed: Listed) -> Listing:
        """The names in it, which the servers of an agent share out."""
        names = tuple(tool.name for tool in listed.tools)
        return Listing(self.server.name, names, self.server.prefix)

    async def _list(self) -> Listed:
        limit = asyncio.timeout(self.server.timeout)
        try:
            async with limit:
                with _ask():
                    tools = await self._fetch()
        except OSError as error:
            if limit.expired():
                # It hangs, so that asking it again is no use: the next turn begins with a new one.
                self._sessions.discard()
            late = f"no answer within {self.server.timeout:g} s"
            reason = str(error).replace(NOT_CREATED, "") or late
            logger.warning(
                "MCP server %r cannot be reached, the turn runs without its tools: %s. `lango "
                "doctor` tries it again.",
                *(self.server.name, reason),
            )
            return replace(self._known, error=reason)
        return self._usable(tools)

    @_retried
    async def _fetch(self) -> list[types.Tool]:
        """A failure is tried once more, with another session if need be."""
        listed: types.ListToolsResult = await self._execute_with_session(
            lambda session: session.list_tools(), "Failed to list the tools"
        )
        # The order is not the server's: another one would cost the model's prompt cache.
        return sorted(listed.tools, key=lambda tool: tool.name)

    def _usable(self, tools: list[types.Tool]) -> Listed:
        """Those that agents may use and that have a schema, and what is wrong with others."""
        usable: list[types.Tool] = []
        problems = list(self._misspelt({tool.name for tool in tools}))
        for tool in tools:
            if self.server.offers(tool.name):
                try:
                    # A schema that is none would have the provider refuse the whole request.
                    check_parameters(tool.name, tool.input_schema)
                    usable.append(tool)
                except InvalidToolError as error:
                    problems.append(f"offers a tool that cannot be used and is left out. {error}")
        return Listed(tuple(usable), tuple(problems))

    def _misspelt(self, listed: set[str]) -> Iterator[str]:
        """A misspelt name would else be a tool that is missing, or one that nobody is asked of."""
        dangerous = () if isinstance(self.server.dangerous, bool) else self.server.dangerous
        for name in sorted({*(self.server.tools or ()), *dangerous} - listed):
            yield f"has no tool {name!r}; there are: {', '.join(sorted(listed))}."

    def _complain(self, text: str) -> None:
        """Once, not in every turn."""
        if text not in self._complaints:
            self._complaints.add(text)
            logger.warning("MCP server %r %s", self.server.name, text)

    async def close(self) -> None:
        """End the program or the connection; the next turn would make a new one."""
        if self._listing is not None:
            self._listing.cancel()
            await asyncio.wait([self._listing])
        await super().close()
        self._stderr.close()


class ServerTool(McpTool):
    """A tool of a server: checked before it is called, limited in time, its failures told."""

    def __init__(self, tool: types.Tool, name: str, sessions: Sessions, server: McpServer) -> None:
        super().__init__(
            mcp_tool=tool,
            mcp_session_manager=sessions,
            require_confirmation=server.is_dangerous(tool.name),
        )
        self.name = name
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
