"""The models and MCP servers of an agent tree, to be checked before it runs."""

from __future__ import annotations

from collections.abc import Iterator

from google.adk.agents.llm_agent import LlmAgent
from google.adk.models.base_llm import BaseLlm
from google.adk.tools.agent_tool import AgentTool
from google.adk.tools.base_toolset import BaseToolset
from google.adk.workflow import BaseNode

from lango.adk.mcp.adk_toolsets import TAKEN, is_adk_mcp, taken_names
from lango.adk.mcp.names import tools_of
from lango.adk.transfers import agents_of
from lango.core.causes import cause_of
from lango.errors import LangoError


def models_in(root: BaseNode) -> dict[str, BaseLlm | Exception]:
    """The models of a tree by name; an exception for one that cannot be created."""
    models: dict[str, BaseLlm | Exception] = {}
    for agent in _llm_agents(root):
        try:
            model = agent.canonical_model
        except Exception as error:  # noqa: BLE001 - from the registry, or from a model's code
            models.setdefault(str(agent.model), error)
        else:
            models.setdefault(model.model, model)
    return models


def adk_mcp_toolsets_in(root: BaseNode) -> list[tuple[LlmAgent, BaseToolset]]:
    """The MCP toolsets of a tree that are ADK's own, with their agents.

    `server_reports` covers lango's.
    """
    return [
        (agent, tool) for agent in _llm_agents(root) for tool in tools_of(agent) if is_adk_mcp(tool)
    ]


async def mcp_problem(agent: LlmAgent, toolset: BaseToolset) -> str:
    """Why an agent does not get the tools that its MCP server lists; empty if it gets all."""
    try:
        tools = await toolset.get_tools_with_prefix()
    except Exception as error:  # noqa: BLE001 - from an external program or server
        cause = error if isinstance(error, LangoError) else cause_of(error)
        return f"cannot be reached: {cause}"
    names = await taken_names(toolset, tools, agent)
    return TAKEN.format(", ".join(map(repr, names))) if names else ""


def _llm_agents(root: BaseNode) -> Iterator[LlmAgent]:
    """The agents of a tree that have a model, including those that tools run."""
    for agent in agents_of(root):
        if isinstance(agent, LlmAgent):
            yield agent
            for tool in tools_of(agent):
                if isinstance(tool, AgentTool):
                    yield from _llm_agents(tool.agent)
