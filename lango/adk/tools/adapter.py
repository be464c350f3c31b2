"""lango's tools as ADK tools: checked arguments, approvals, safe errors, bounded results."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Iterable
from copy import deepcopy
from hashlib import sha256
from typing import Any, Final, cast

from google.adk.tools.base_tool import BaseTool
from google.adk.tools.base_toolset import BaseToolset
from google.adk.tools.tool_context import ToolContext
from google.adk.workflow import BaseNode
from google.genai import types

from lango.adk.compat.tools import DeclaredTool
from lango.adk.tools.feedback import feedback
from lango.core.values import JsonObject, json_text, storable_json
from lango.errors import ToolArgumentsError
from lango.tools.base import CallInfo, Tool
from lango.tools.calling import call

logger = logging.getLogger(__name__)

MAX_OUTPUT: Final = 256 * 1024
"""Bytes of JSON that a model sees of one result; a longer one is kept as an artifact."""
HEAD: Final = 4 * 1024
"""Characters of a longer result that the model sees."""

# ADK's own texts, from FunctionTool and from the check before every tool.
HINT: Final = (
    "Please approve or reject the tool call {name}() by responding with a FunctionResponse with "
    "an expected ToolConfirmation payload."
)
UNCONFIRMED: Final = "This tool call requires confirmation, please approve or reject."
REJECTED: Final = "This tool call is rejected."

AdkTool = Callable[..., Any] | BaseTool | BaseToolset
"""What ADK accepts as an agent's tools."""


class ToolAdapter(DeclaredTool):
    """A lango tool as an ADK tool: an error of the tool never ends the turn."""

    def __init__(self, tool: Tool) -> None:
        super().__init__(name=tool.name, description=tool.description)
        self.tool = tool

    def declaration(self) -> types.FunctionDeclaration:
        """The declaration that the model gets."""
        return types.FunctionDeclaration(
            name=self.name,
            description=self.description,
            parameters_json_schema=deepcopy(self.tool.parameters),  # ADK edits declarations
        )

    async def check_require_confirmation(
        self, args: dict[str, Any], tool_context: ToolContext
    ) -> bool:
        """Whether a person must approve: the tool requires it, and the arguments are valid."""
        del tool_context
        if not self.tool.require_confirmation:
            return False
        try:
            self.tool.checked(args)
        except ToolArgumentsError:
            return False  # the model gets the error; there is nothing to approve
        return True

    async def run_async(self, *, args: dict[str, Any], tool_context: ToolContext) -> JsonObject:
        """The tool's result, or `{"error": …}` with the id under which the log has the rest."""
        try:
            arguments = self.tool.checked(args)
            refusal = self._unconfirmed(tool_context)
            if refusal is not None:
                return refusal
            result = await self.answer(arguments, tool_context)
            return await fitted(as_result(result), self.name, tool_context)
        except Exception as error:  # noqa: BLE001 - the model gets every error of a tool
            return feedback(error, self.name)

    async def answer(self, arguments: JsonObject, tool_context: ToolContext) -> Any:
        """The tool's own result; a subclass may get it in another way."""
        return await call(self.tool, arguments, call_info(tool_context))

    def _unconfirmed(self, tool_context: ToolContext) -> JsonObject | None:
        """Ask for confirmation if ADK has not, because the tool was called in another way."""
        if not self.tool.require_confirmation:
            return None
        if tool_context.tool_confirmation is None:
            tool_context.request_confirmation(hint=HINT.format(name=self.name))
            tool_context.actions.skip_summarization = True
            return {"error": UNCONFIRMED}
        return None if tool_context.tool_confirmation.confirmed else {"error": REJECTED}


def as_adk_tools(items: Iterable[Tool | AdkTool]) -> list[AdkTool]:
    """Wrap lango's tools for ADK; ADK's own tools stay as they are."""
    return [ToolAdapter(item) if isinstance(item, Tool) else item for item in items]


def tool_name(item: AdkTool) -> str:
    """The name by which ADK calls a tool; empty for a toolset, which has several."""
    if isinstance(item, BaseToolset):
        return ""
    name = getattr(item, "name" if isinstance(item, BaseTool | BaseNode) else "__name__", None)
    return name if isinstance(name, str) else type(item).__name__


def call_info(tool_context: ToolContext) -> CallInfo:
    """The information about a call that its tool gets."""
    session = tool_context.session
    call_id = tool_context.function_call_id or ""
    return CallInfo(
        call_id=call_id,
        key=f"{tool_context.invocation_id}/{call_id}",
        app_name=session.app_name,
        user_id=session.user_id,
        session_id=session.id,
    )


def as_result(value: Any) -> JsonObject:
    """Any result as the storable object that ADK needs."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = dataclasses.asdict(value)
    storable = storable_json(value)
    return cast(JsonObject, storable) if isinstance(storable, dict) else {"result": storable}


async def fitted(result: JsonObject, name: str, tool_context: ToolContext) -> JsonObject:
    """The result itself, or for one that is too long its beginning and its artifact."""
    text = json_text(result)
    if len(text) * 4 <= MAX_OUTPUT:
        return result
    data = text.encode()
    if len(data) <= MAX_OUTPUT:
        return result
    shortened: JsonObject = {"truncated": True, "size": len(data), "head": text[:HEAD]}
    return shortened | await _keep(data, name, tool_context)


async def _keep(data: bytes, name: str, tool_context: ToolContext) -> JsonObject:
    # Hashed: a call's id may be any text, and the artifact's name may become a path.
    call = sha256(call_info(tool_context).key.encode(errors="replace")).hexdigest()[:16]
    filename = f"{name}-{call}.json"
    part = types.Part.from_bytes(data=data, mime_type="application/json")
    try:
        version = await tool_context.save_artifact(filename, part)
    except Exception:  # the tool has run: the model must still get the head of its output
        logger.warning("The long output of %r was not kept as an artifact", name, exc_info=True)
        return {"note": "The rest of the output was not kept: no artifact service took it."}
    return {"artifact": filename, "version": version}
