"""How ADK's AgentTool reads its agent's input, state and answer."""

# pyright: reportPrivateUsage=false

from __future__ import annotations

import json
from typing import Any, Final

from google.adk.artifacts.base_artifact_service import BaseArtifactService
from google.adk.tools import agent_tool
from google.adk.tools._forwarding_artifact_service import ForwardingArtifactService
from google.adk.tools.agent_tool import AgentTool
from google.adk.tools.tool_context import ToolContext
from google.adk.utils._schema_utils import validate_schema
from google.genai import types

_OWN_STATE: Final = "_adk"


def is_own_state(key: str) -> bool:
    """Whether a key of the state is ADK's own, which AgentTool does not pass to its agent."""
    return key.startswith(_OWN_STATE)


def request_text(tool: AgentTool, args: dict[str, Any]) -> str:
    """The message that the agent gets for a call with these arguments."""
    schema = agent_tool._get_input_schema(tool.agent)
    if schema is not None:
        return schema.model_validate(args).model_dump_json(exclude_none=True)
    request: Any = args.get("request")
    return (
        request
        if isinstance(request, str)
        else json.dumps(args, ensure_ascii=False, sort_keys=True)
    )


def part_text(part: types.Part) -> str:
    """The text of a part that AgentTool returns; empty if it has none."""
    return agent_tool._part_to_text(part)


def checked_answer(tool: AgentTool, text: str) -> Any:
    """The agent's answer, validated by its output schema if it has one."""
    schema = agent_tool._get_output_schema(tool.agent)
    return validate_schema(schema, text) if schema else text


def forwarded_artifacts(context: ToolContext) -> BaseArtifactService:
    """An artifact service that saves and loads through the caller's context."""
    return ForwardingArtifactService(context)
