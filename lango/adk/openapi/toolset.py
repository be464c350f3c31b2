"""The operations of an OpenAPI document as tools; none replaces another tool of the agent."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

from google.adk.agents.readonly_context import ReadonlyContext
from google.adk.tools.base_tool import BaseTool
from google.adk.tools.tool_context import ToolContext
from google.adk.workflow import BaseNode

from lango.adk.compat.contexts import agent_of
from lango.adk.compat.tools import UncachedToolset
from lango.adk.credentials.masking import Secrets
from lango.adk.mcp.adk_toolsets import is_mcp
from lango.adk.mcp.names import own_names, toolset_names, toolsets_of
from lango.adk.openapi.operations import Operation, ReadDocument, read_document
from lango.adk.openapi.settings import OpenApiDocument
from lango.adk.tools.adapter import ToolAdapter, as_result
from lango.adk.tools.offered import OfferedTools, UnreachableNote
from lango.core.causes import cause_of
from lango.core.values import JsonObject
from lango.errors import InvalidToolError, LangoError, ToolError, ToolTimeoutError
from lango.tools.base import CallInfo, Tool
from lango.tools.checked_http import Origin, WebRules, fetch_text
from lango.tools.names import ServerTools, server_tool_names

logger = logging.getLogger(__name__)


class OperationToolset(UncachedToolset):
    """The tools of one document; one that cannot be fetched leaves the turn without them."""

    def __init__(self, document: OpenApiDocument) -> None:
        super().__init__()
        self.document = document
        self._read: ReadDocument | None = None
        self._fetching: asyncio.Task[ReadDocument] | None = None
        self._failure: tuple[str, LangoError] | None = None
        self._complaints: set[str] = set()
        if document.file is not None:
            self._read = read_document(document, _text_of(document, Path(document.file)))
            if self._read.problems:
                raise InvalidToolError(
                    f"The OpenAPI document {document.name!r} {self._read.problems[0]}"
                )

    async def get_tools(self, readonly_context: ReadonlyContext | None = None) -> list[BaseTool]:
        """The operations as tools; if the document cannot be fetched, a note."""
        offered = await self.offered(agent_of(readonly_context), readonly_context)
        for problem in offered.problems:
            self._log_once(problem)
        note = UnreachableNote(self.document.name, "API") if offered.error else None
        return [*offered.tools, *([note] if note else [])]

    async def offered(
        self, agent: BaseNode | None, context: ReadonlyContext | None = None
    ) -> OfferedTools[OperationTool]:
        """The tools, with names that are unique in the agent."""
        turn = context.invocation_id if context else ""
        toolsets = [
            candidate for candidate in toolsets_of(agent) if isinstance(candidate, OperationToolset)
        ]
        other_toolsets = [toolset for toolset in toolsets if toolset is not self]
        read = [self.read(turn), *(toolset.read(turn) for toolset in other_toolsets)]
        own_document, *other_documents = await asyncio.gather(*read, return_exceptions=True)
        if isinstance(own_document, BaseException):
            if not isinstance(own_document, LangoError):
                raise own_document
            return OfferedTools((), (), str(own_document).rstrip("."))
        listings = [self.listing(own_document)]
        for toolset, document in zip(other_toolsets, other_documents, strict=True):
            if not isinstance(document, BaseException):  # it reports that itself
                listings.append(toolset.listing(document))
        names, *_ = server_tool_names(listings, await self._taken(agent, context))
        tools = tuple(
            OperationTool(operation, name.name, self.document)
            for operation, name in zip(own_document.operations, names, strict=True)
            if name.name is not None
        )
        problems = (*own_document.problems, *(name.problem for name in names if name.problem))
        return OfferedTools(tools, problems)

    async def _taken(self, agent: BaseNode | None, context: ReadonlyContext | None) -> set[str]:
        """The names of the agent's other tools, except those of MCP servers: they come last."""
        other_toolsets = [
            toolset
            for toolset in toolsets_of(agent)
            if not isinstance(toolset, OperationToolset) and not is_mcp(toolset)
        ]
        return own_names(agent) | await toolset_names(other_toolsets, context)

    def listing(self, read: ReadDocument) -> ServerTools:
        """The names, from which `server_tool_names` makes unique ones."""
        names = tuple(operation.tool.name for operation in read.operations)
        document = self.document
        return ServerTools(document.name, names, document.prefix, kind="OpenAPI document")

    async def read(self, turn: str) -> ReadDocument:
        """The document, fetched once; a failure is a LangoError for the rest of the turn."""
        if self._read is not None:
            return self._read
        if self._failure is not None and turn and self._failure[0] == turn:
            raise self._failure[1]
        if self._fetching is None or self._fetching.done():
            self._fetching = asyncio.create_task(self._fetched())
            self._fetching.add_done_callback(_seen)
        try:
            # A cancelled turn must not cancel the fetch for others.
            read = await asyncio.shield(self._fetching)
        except LangoError as error:
            self._failure = (turn, error)
            logger.warning(
                "OpenAPI document %r cannot be used, the turn runs without its tools: %s `lango "
                "doctor` tries it again.",
                *(self.document.name, error),
            )
            raise
        self._read = read
        return read

    async def _fetched(self) -> ReadDocument:
        document = self.document
        url = document.url or ""
        rules = WebRules(Origin.of(url), document.networks, document.timeout)
        text = await fetch_text(url, rules)
        return await asyncio.to_thread(read_document, document, text)

    async def close(self) -> None:
        """Stop fetching the document."""
        if self._fetching is not None:
            self._fetching.cancel()
            await asyncio.wait([self._fetching])

    def _log_once(self, text: str) -> None:
        """Log a problem once, not in every turn."""
        if text not in self._complaints:
            self._complaints.add(text)
            logger.warning("OpenAPI document %r %s", self.document.name, text)


class OperationTool(ToolAdapter):
    """An operation as a tool, with the rules of lango's tools."""

    def __init__(self, operation: Operation, name: str, document: OpenApiDocument) -> None:
        super().__init__(
            Tool(
                name=name,
                description=operation.description,
                parameters=operation.parameters,
                run=_runs_as_adk_tool,
                idempotent=operation.is_safe,
                require_confirmation=document.requires_confirmation(operation.id),
                timeout=document.timeout,
            )
        )
        self._operation = operation.tool
        self._secrets = Secrets()
        if document.auth is not None:
            self._secrets.add([document.auth.secret, document.auth.client_secret])

    async def answer(self, arguments: JsonObject, tool_context: ToolContext) -> Any:
        """The API's answer; ToolError if it refuses the call."""
        limit = asyncio.timeout(self.tool.timeout)
        try:
            async with limit:
                answer = await self._operation.run_async(args=arguments, tool_context=tool_context)
        except TimeoutError:
            if not limit.expired():
                raise
            raise ToolTimeoutError(
                f"{self.name} gave no answer within {self.tool.timeout:g} seconds. "
                "It may have been done or not."
            ) from None
        masked: dict[str, Any] = as_result(self._secrets.masked(answer))
        error = masked.get("error")
        if isinstance(error, str) and len(masked) == 1:  # ADK's form of a refused call
            raise ToolError(error)
        return masked


def _runs_as_adk_tool(arguments: JsonObject, info: CallInfo) -> Any:
    """Never called: `OperationTool.answer` needs ADK's context."""
    raise NotImplementedError


def _seen(task: asyncio.Task[ReadDocument]) -> None:
    """Retrieve the exception of a task that may have no waiters left."""
    if not task.cancelled():
        task.exception()


def _text_of(document: OpenApiDocument, file: Path) -> str:
    try:
        return file.read_text("utf-8")
    except (OSError, UnicodeError) as error:
        raise InvalidToolError(
            f"The OpenAPI document {document.name!r} cannot be read: {cause_of(error)}"
        ) from error
