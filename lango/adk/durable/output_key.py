"""Rebuilds the value of an agent's `output_key` from the stored events.

ADK collects an agent's texts in memory while it runs. An agent that resumes after a kill has lost
the earlier texts, and would store only the rest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from google.adk.agents.base_agent import BaseAgent
from google.adk.agents.llm_agent import LlmAgent
from google.adk.events.event import Event
from google.adk.workflow import BaseNode

from lango.adk.durable.journal import step_of
from lango.adk.transfers import agents_of


def output_keys(root: BaseNode) -> dict[str, str]:
    """The keys under which agents collect their texts, by agent name.

    In a Workflow they collect nothing: the last text is the output.
    """
    if not isinstance(root, BaseAgent):
        return {}
    return {
        agent.name: agent.output_key
        for agent in agents_of(root)
        if isinstance(agent, LlmAgent) and agent.output_key and not agent.output_schema
        if agent.mode != "task"
    }


def complete_output(keys: Mapping[str, str], before: Sequence[Event], event: Event) -> None:
    """Put the agent's whole output into the event that changes it."""
    key = keys.get(event.author)
    if key is None or key not in event.actions.state_delta or not _text(event) or step_of(event):
        return
    texts = [_text(event)]
    for earlier in reversed(before):
        if earlier.invocation_id != event.invocation_id or _begins(earlier, event):
            break
        if (earlier.author, earlier.branch) == (event.author, event.branch):
            texts.append(_text(earlier))
    event.actions.state_delta[key] = "".join(reversed(texts))


def _begins(earlier: Event, event: Event) -> bool:
    """Whether the agent's run began after this: a user's message, or the agent's earlier end."""
    if earlier.author == "user":
        return not earlier.node_info.path
    return bool(earlier.author == event.author and earlier.actions.end_of_agent)


def _text(event: Event) -> str:
    parts = (event.content.parts if event.content else None) or []
    return "".join(part.text for part in parts if part.text and not part.thought)
