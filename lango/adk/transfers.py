"""Which agents of an ADK tree may transfer a turn to which."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

from google.adk.agents import BaseAgent
from google.adk.apps.app import App
from google.adk.workflow import BaseNode, Workflow

from lango.adk.apps.load import Root
from lango.errors import AppLoadError

_CALLED_AS_TOOLS: Final = frozenset({"single_turn", "task"})
"""Modes of agents that get a task by a tool call, never by a transfer."""


def root_of(root: Root) -> BaseNode:
    """The agent or Workflow at the top."""
    if not isinstance(root, App):
        return root
    if root.root_agent is None:  # ADK's App checks this itself, unless built unchecked
        raise AppLoadError("The App has no root agent.")
    return root.root_agent


def find_agent(root: BaseNode, name: str) -> BaseAgent | None:
    """The agent of that name under a root, also in a Workflow's graph."""
    return next((agent for agent in agents_of(root) if agent.name == name), None)


def agents_of(node: BaseNode) -> Iterator[BaseAgent]:
    """Every agent under a node, itself included, parents first."""
    if isinstance(node, BaseAgent):
        yield node
        children: list[Any] = list(node.sub_agents)
    else:
        graph = node.graph if isinstance(node, Workflow) else None
        children = list(graph.nodes) if graph else []
    for child in children:
        yield from agents_of(child)


def check_names(root: BaseNode) -> None:
    """Raise AppLoadError if two agents of a tree share a name: events identify agents by name."""
    names = Counter(agent.name for agent in agents_of(root))
    duplicates = sorted(name for name, times in names.items() if times > 1)
    if duplicates:
        raise AppLoadError(
            f"Several agents under {root.name} are named {', '.join(duplicates)}. Give each agent "
            "of a tree a name of its own: stored events name agents by it."
        )


def transfer_targets(agent: BaseAgent) -> list[str]:
    """The names of the agents that an agent may transfer to, in ADK's order.

    Its sub-agents; also its parent and siblings, unless its settings disallow these or the parent
    runs its agents in a fixed order.
    """
    if not _transfers(agent):
        return []
    names = [child.name for child in agent.sub_agents if _is_target(child)]
    parent = agent.parent_agent
    if parent is None or not _transfers(parent):
        return names
    if not getattr(agent, "disallow_transfer_to_parent", False):
        names.append(parent.name)
    if not getattr(agent, "disallow_transfer_to_peers", False):
        names += [p.name for p in parent.sub_agents if p.name != agent.name and _is_target(p)]
    return names


def _transfers(agent: BaseAgent) -> bool:
    return hasattr(agent, "disallow_transfer_to_parent")


def _is_target(agent: BaseAgent) -> bool:
    return getattr(agent, "mode", None) not in _CALLED_AS_TOOLS
