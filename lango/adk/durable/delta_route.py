"""Decides which deltas may reach the turn's log directly: those that no code could see in ADK."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from google.adk.agents.invocation_context import InvocationContext
from google.adk.agents.llm_agent import LlmAgent
from google.adk.apps.app import App
from google.adk.planners.built_in_planner import BuiltInPlanner
from google.adk.plugins.base_plugin import BasePlugin
from google.adk.workflow import BaseNode, Workflow

from lango.adk.models.adapter import ModelAdapter
from lango.adk.models.caller import is_in_tool
from lango.adk.transfers import root_of

_SEES_PARTIALS: Final = ("after_model_callback", "on_event_callback")
_OF_ADK: Final = "google.adk."
_OURS: Final = ("lango.", BasePlugin.__module__)
"""Modules of callbacks that ignore partial responses and partial events."""


def hides_partials(app: App) -> bool:
    """Whether only ADK's own classes and plugins that ignore them see an app's partial events."""
    is_plain = all(type(node).__module__.startswith(_OF_ADK) for node in _nodes(root_of(app)))
    return is_plain and not any(map(_reads_partials, app.plugins))


def is_direct(ctx: InvocationContext) -> bool:
    """Whether the next answer of the running agent may bypass ADK, in an app that hides partials.

    An agent that a tool runs streams to the tool, not to the turn's log.
    """
    agent = ctx.agent
    return (
        isinstance(agent, LlmAgent)
        and not agent.canonical_after_model_callbacks
        and (agent.planner is None or isinstance(agent.planner, BuiltInPlanner))
        and _is_adapter(agent)
        and not is_in_tool()
    )


def _nodes(node: BaseNode) -> Iterator[BaseNode]:
    """A node and all nodes below it."""
    yield node
    graph = node.graph if isinstance(node, Workflow) else None
    for child in graph.nodes if graph else getattr(node, "sub_agents", ()):
        yield from _nodes(child)


def _reads_partials(plugin: BasePlugin) -> bool:
    return any(not getattr(plugin, name).__module__.startswith(_OURS) for name in _SEES_PARTIALS)


def _is_adapter(agent: LlmAgent) -> bool:
    """Whether the agent's model is lango's own: a wrapper around it could change its partials."""
    implementation = type(agent.canonical_model).generate_content_async
    return implementation is ModelAdapter.generate_content_async
