"""Patches the position of a node's input in the session's events.

ADK passes an agent in a Workflow its input as a message at the end of the session's events. When
the agent resumes after a kill, its own calls and their results are already there. After them, the
input reads as a new request, and the model would start over. It belongs before them.
"""

from __future__ import annotations

from typing import Any

from google.adk.agents.context import Context
from google.adk.agents.llm_agent import LlmAgent
from google.adk.events.event import Event

from lango.adk.compat.workflow import prepare_input, replace_prepare_input


def prepared(agent: LlmAgent, ctx: Context, node_input: Any) -> Event | None:
    input_event = prepare_input(agent, ctx, node_input)
    events = ctx.session.events
    if input_event is None or not events or events[-1] is not input_event:
        return input_event
    invocation_id = ctx.invocation_id
    for index, event in enumerate(events[:-1]):
        same_node = (
            event.node_info.path == input_event.node_info.path
            and event.branch == input_event.branch
        )
        if event.invocation_id == invocation_id and same_node and event.content:
            events.insert(index, events.pop())
            break
    return input_event


def install_patch() -> None:
    """Patch ADK's function (idempotent)."""
    replace_prepare_input(prepared)
