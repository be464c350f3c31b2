"""Which agent trees can be resumed exactly, and by what a changed one is known."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final

from google.adk.agents import (
    LoopAgent,  # pyright: ignore[reportDeprecated]  # people have them
    ParallelAgent,  # pyright: ignore[reportDeprecated]
    SequentialAgent,  # pyright: ignore[reportDeprecated]
)
from google.adk.agents.base_agent import BaseAgent
from google.adk.agents.llm_agent import LlmAgent
from google.adk.tools.agent_tool import AgentTool
from google.adk.tools.base_tool import BaseTool
from google.adk.tools.base_toolset import BaseToolset
from google.adk.workflow import START, BaseNode, FunctionNode, JoinNode, Workflow

from lango.adk.durable.agent_tool import runs_a_child
from lango.adk.transfers import agents_of
from lango.core.values import json_text

_IN_FIXED_ORDER: Final = (
    LoopAgent,  # pyright: ignore[reportDeprecated]
    ParallelAgent,  # pyright: ignore[reportDeprecated]
    SequentialAgent,  # pyright: ignore[reportDeprecated]
)


@dataclass(frozen=True, slots=True)
class Shape:
    """Whether a turn of an agent tree can go on after its worker died; if not, why not."""

    problems: tuple[str, ...] = ()

    @property
    def is_exact(self) -> bool:
        """Whether every kill of the sweep was resumed without a trace."""
        return not self.problems


def shape_of(root: BaseNode) -> Shape:
    """What is known of a tree: only what has been tried counts as resumable."""
    return Shape(tuple(dict.fromkeys(_problems(root))))


def _problems(root: BaseNode) -> Iterator[str]:
    if isinstance(root, Workflow):
        for node in root.graph.nodes if root.graph else ():
            yield from _node_problems(node)
    elif isinstance(root, _IN_FIXED_ORDER):
        for below in root.sub_agents:
            yield from _llm_problems(below, f"in {type(root).__name__} {root.name}")
            if below.sub_agents:
                yield f"{below.name} in {root.name} has agents of its own"
    else:
        yield from _chat_problems(root)


def _chat_problems(root: BaseNode) -> Iterator[str]:
    """An agent that talks with the user, and the agents it can pass the turn to."""
    yield from _llm_problems(root, "")
    for below in root.sub_agents if isinstance(root, BaseAgent) else ():
        yield from _chat_problems(below)


def _node_problems(node: BaseNode) -> Iterator[str]:
    if node is START or isinstance(node, JoinNode):
        return
    if isinstance(node, FunctionNode):
        function = inspect.unwrap(_function(node))
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            yield f"the node {node.name} is a generator"
        if node.require_confirmation or node.auth_config:
            yield f"the node {node.name} asks a person"
        return
    yield from _llm_problems(node, "in a Workflow", modes=(None, "single_turn"))
    if isinstance(node, BaseAgent) and node.sub_agents:
        yield f"{node.name} in a Workflow has agents of its own"


def _function(node: FunctionNode) -> Any:
    return node._func  # pyright: ignore[reportPrivateUsage]


def _llm_problems(
    agent: BaseNode, where: str, modes: tuple[str | None, ...] = (None, "chat")
) -> Iterator[str]:
    named = f"{agent.name} ({type(agent).__name__}{' ' if where else ''}{where})"
    runs = getattr(type(agent), "_run_async_impl", None)
    if not isinstance(agent, LlmAgent) or runs is not LlmAgent._run_async_impl:  # pyright: ignore[reportPrivateUsage]
        yield f"{named} runs in a way of its own"
        return
    if agent.mode not in modes:
        yield f"{named} has the mode {agent.mode}"
    if agent.code_executor or agent.planner:
        yield f"{named} has a code executor or a planner"
    for tool in _tools(agent):
        yield from _tool_problems(tool)


def _tool_problems(tool: Any) -> Iterator[str]:
    if not isinstance(tool, AgentTool):
        return
    if not runs_a_child(tool):
        yield f"the tool {tool.name} runs an agent in a way of its own"
        return
    yield from (f"{problem}, which the tool {tool.name} runs" for problem in _problems(tool.agent))


def fingerprint(root: BaseNode) -> str:
    """A hash of a tree's names, kinds and tool names: what a turn that goes on depends on."""
    return sha256(json_text(_outline(root)).encode()).hexdigest()


def _outline(node: BaseNode) -> Any:
    below: list[Any] = []
    if isinstance(node, BaseAgent):
        below = [_outline(agent) for agent in node.sub_agents]
    elif isinstance(node, Workflow) and node.graph:
        below = [_outline(one) for one in node.graph.nodes]
        below += [f"{edge.from_node.name}>{edge.to_node.name}" for edge in node.graph.edges]
    return [type(node).__name__, node.name, sorted(tool_names(node)), below]


def tool_names(node: BaseNode) -> set[str]:
    """The tools that a node itself has; those of a toolset are not known before it is asked."""
    return {_name(tool) for tool in _tools(node)}


def _tools(node: BaseNode) -> list[Any]:
    return getattr(node, "tools", None) or []


def _name(tool: Any) -> str:
    if isinstance(tool, BaseTool):
        return tool.name
    if isinstance(tool, BaseToolset):
        return f"{type(tool).__name__}*"
    return getattr(tool, "__name__", type(tool).__name__)


def missing_parts(root: BaseNode, authors: set[str], calls: dict[str, str]) -> list[str]:
    """The agents and tools that a turn has begun with and a changed tree no longer has.

    `calls` are the names of open calls and their authors.
    """
    agents = {agent.name: agent for agent in agents_of(root)} | {root.name: root}
    gone = [f"the agent {name}" for name in sorted(authors) if name not in agents]
    for name, author in sorted(calls.items()):
        tools = tool_names(agents[author]) if author in agents else set[str]()
        if author in agents and name not in tools and not any(t.endswith("*") for t in tools):
            gone.append(f"the tool {name} of {author}")
    return gone
