"""Which agent trees can be resumed exactly, and how a changed tree is detected."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final

from google.adk.agents import (
    LoopAgent,  # pyright: ignore[reportDeprecated]  # people have them
    SequentialAgent,  # pyright: ignore[reportDeprecated]
)
from google.adk.agents.base_agent import BaseAgent
from google.adk.agents.llm_agent import LlmAgent
from google.adk.tools.agent_tool import AgentTool
from google.adk.tools.base_tool import BaseTool
from google.adk.tools.base_toolset import BaseToolset
from google.adk.workflow import START, BaseNode, FunctionNode, JoinNode, Workflow

from lango.adk.compat.agents import runs_as_adk_does
from lango.adk.compat.workflow import function_of
from lango.adk.durable.child_agents import runs_a_child
from lango.adk.durable.gated_agents import gated
from lango.adk.durable.journal import CONTAINERS
from lango.adk.transfers import agents_of, transfer_targets
from lango.adk.versions import version_problem
from lango.core.values import json_text
from lango.errors import NotResumableError

TRANSFER: Final = "transfer_to_agent"
"""The tool that ADK gives an agent with transfer targets."""
SET_MODEL_RESPONSE: Final = "set_model_response"
"""The tool that ADK gives an agent with an output schema and tools."""


@dataclass(frozen=True, slots=True)
class Shape:
    """Whether a turn of an agent tree can resume after its worker died; if not, why not."""

    problems: tuple[str, ...] = ()

    @property
    def is_exact(self) -> bool:
        """Whether a turn resumes exactly after a kill at any point."""
        return not self.problems


def shape_of(root: BaseNode) -> Shape:
    """The shape of a tree: only tested kinds of trees count as resumable."""
    version = version_problem()
    problems = (*([version] if version else ()), *_problems(root))
    return Shape(tuple(dict.fromkeys(problems)))


def gated_if_exact(root: BaseNode) -> BaseNode:
    """The tree as a claimed turn runs it: gated, or unchanged if it cannot be resumed."""
    return gated(root) if shape_of(root).is_exact else root


def _problems(root: BaseNode) -> Iterator[str]:
    if isinstance(root, Workflow):
        for node in root.graph.nodes if root.graph else ():
            yield from _node_problems(node)
    elif isinstance(root, CONTAINERS):
        yield from _container_problems(root)
    else:
        yield from _chat_problems(root)


def _container_problems(root: BaseAgent) -> Iterator[str]:
    if not any(runs_as_adk_does(root, kind) for kind in CONTAINERS):
        yield f"{root.name} ({type(root).__name__}) overrides how it runs"
    for sub_agent in root.sub_agents:
        if isinstance(sub_agent, CONTAINERS):
            yield from _container_problems(sub_agent)
            continue
        yield from _llm_problems(sub_agent, f"in {type(root).__name__} {root.name}")
        if sub_agent.sub_agents:
            yield f"{sub_agent.name} in {root.name} has sub-agents"


def _chat_problems(root: BaseNode) -> Iterator[str]:
    """The problems of an agent that talks with the user, and of its sub-agents."""
    yield from _llm_problems(root, "")
    for sub_agent in root.sub_agents if isinstance(root, BaseAgent) else ():
        yield from _chat_problems(sub_agent)


def _node_problems(node: BaseNode) -> Iterator[str]:
    if node is START or isinstance(node, JoinNode):
        return
    if isinstance(node, FunctionNode):
        function = inspect.unwrap(function_of(node))
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            yield f"the node {node.name} is a generator"
        if node.require_confirmation or node.auth_config:
            yield f"the node {node.name} asks a person"
        return
    yield from _llm_problems(node, "in a Workflow", modes=(None, "single_turn"))
    if isinstance(node, BaseAgent) and node.sub_agents:
        yield f"{node.name} in a Workflow has sub-agents"


def _llm_problems(
    agent: BaseNode, context: str, modes: tuple[str | None, ...] = (None, "chat")
) -> Iterator[str]:
    label = f"{agent.name} ({type(agent).__name__}{' ' if context else ''}{context})"
    if not isinstance(agent, LlmAgent) or not runs_as_adk_does(agent, LlmAgent):
        yield f"{label} overrides how it runs"
        return
    if agent.mode not in modes:
        yield f"{label} has the mode {agent.mode}"
    if agent.code_executor or agent.planner:
        yield f"{label} has a code executor or a planner"
    for tool in _tools(agent):
        yield from _tool_problems(tool)


def _tool_problems(tool: Any) -> Iterator[str]:
    if not isinstance(tool, AgentTool):
        return
    if not runs_a_child(tool):
        yield f"the tool {tool.name} overrides how it runs an agent"
        return
    yield from (f"{problem}, which the tool {tool.name} runs" for problem in _problems(tool.agent))


def check_answerable(root: BaseNode, asker: str) -> None:
    """Raise NotResumableError if an answer to an agent would skip the agents after it.

    ADK resumes a sequence or a loop that is the root, or is nested only in containers up to the
    root. Below an LlmAgent or an agent of another class, it runs only the agent that asked.
    """
    agents = {agent.name: agent for agent in agents_of(root)}
    agent = agents.get(asker)
    parent = agent.parent_agent if agent is not None else None
    while agent is not None and parent is not None:
        if _all_containers(parent):
            return
        if _has_agents_after(parent, agent):
            raise NotResumableError(
                f"{asker} asked in {parent.name}, a {type(parent).__name__} that is not the root "
                "agent. ADK would not run the agents that follow there, so the answer was "
                f"refused. Make {parent.name} the root agent, or let its last agent ask."
            )
        agent, parent = parent, parent.parent_agent


def _all_containers(agent: BaseAgent | None) -> bool:
    """Whether an agent and all its ancestors are containers."""
    return agent is None or (isinstance(agent, CONTAINERS) and _all_containers(agent.parent_agent))


def _has_agents_after(container: BaseAgent, agent: BaseAgent) -> bool:
    """Whether a container has agents to run after this one."""
    if isinstance(container, SequentialAgent):  # pyright: ignore[reportDeprecated]
        return container.sub_agents[-1] is not agent
    return isinstance(container, LoopAgent)  # pyright: ignore[reportDeprecated]


def fingerprint(root: BaseNode) -> str:
    """A hash of a tree's names, kinds and tool names, on which a resumed turn depends."""
    return sha256(json_text(_outline(root)).encode()).hexdigest()


def _outline(node: BaseNode) -> Any:
    children: list[Any] = []
    if isinstance(node, BaseAgent):
        children = [_outline(agent) for agent in node.sub_agents]
    elif isinstance(node, Workflow) and node.graph:
        children = [_outline(child) for child in node.graph.nodes]
        children += [f"{edge.from_node.name}>{edge.to_node.name}" for edge in node.graph.edges]
    return [type(node).__name__, node.name, sorted(tool_names(node)), children]


def tool_names(node: BaseNode) -> set[str]:
    """The tool names of a node; those in a toolset are unknown until it lists them."""
    return {_name(tool) for tool in _tools(node)}


def _tools(node: BaseNode) -> list[Any]:
    return getattr(node, "tools", None) or []


def _name(tool: Any) -> str:
    if isinstance(tool, BaseTool):
        return tool.name
    if isinstance(tool, BaseToolset):
        return f"{type(tool).__name__}*"
    return getattr(tool, "__name__", type(tool).__name__)


def missing_parts(root: BaseNode, needed: set[str], calls: dict[str, str]) -> list[str]:
    """The agents and tools that a turn still needs and a changed tree no longer has.

    `calls` maps the names of open calls to their authors.
    """
    agents = {agent.name: agent for agent in agents_of(root)} | {root.name: root}
    parts = [f"the agent {name}" for name in sorted(needed) if name not in agents]
    for name, author in sorted(calls.items()):
        tools = _callable(agents[author]) if author in agents else {name}
        if name not in tools and not any(t.endswith("*") for t in tools):
            parts.append(f"the tool {name} of {author}")
    return parts


def _callable(node: BaseNode) -> set[str]:
    """The tools that a node's model may call, including those that ADK adds."""
    added: set[str] = set()
    if isinstance(node, LlmAgent):
        added |= {TRANSFER} if transfer_targets(node) else set()
        added |= {SET_MODEL_RESPONSE} if node.output_schema else set()
    return tool_names(node) | added
