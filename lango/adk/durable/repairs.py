"""What a dead worker did not get to write, written for it before ADK goes on.

Each function looks at the events of one invocation and gives the events that are missing. Their
ids come from the events they follow, so that writing them twice writes them once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any, Final, cast

from google.adk.agents import (
    LoopAgent,  # pyright: ignore[reportDeprecated]  # people have them
    SequentialAgent,  # pyright: ignore[reportDeprecated]
)
from google.adk.agents.base_agent import BaseAgent
from google.adk.agents.invocation_context import InvocationContext
from google.adk.agents.llm_agent import LlmAgent
from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions
from google.adk.flows.llm_flows.functions import (
    generate_auth_event,
    generate_request_confirmation_event,
)
from google.adk.workflow import BaseNode
from google.genai import types

from lango.adk.approvals import CONFIRMATION
from lango.adk.transfers import agents_of, find_agent
from lango.core.values import JsonObject

CREDENTIAL: Final = "adk_request_credential"
_CALLED_AS_TOOLS: Final = ("single_turn", "task")

Repair = Callable[[Sequence[Event], BaseNode], Iterator[Event]]


def is_over(since_message: Sequence[Event], root: BaseNode) -> bool:
    """Whether an agent that talks with the user has had its last word in the turn.

    Agents in a fixed order and Workflows find that out by themselves.
    """
    said = [event for event in since_message if _has_parts(event) and event.author != "user"]
    if not isinstance(root, LlmAgent) or not said:
        return False
    last = said[-1]
    if not _is_final_text(last) or last.isolation_scope:
        return False
    agent = find_agent(root, last.author)
    return agent is not None and _talks_with_the_user(agent)


def _talks_with_the_user(agent: BaseAgent) -> bool:
    above: BaseAgent | None = agent
    while above is not None:
        if not isinstance(above, LlmAgent) or above.mode in _CALLED_AS_TOOLS:
            return False
        above = above.parent_agent
    return True


def missing_confirmations(events: Sequence[Event], root: BaseNode) -> Iterator[Event]:
    """Questions to a person that a tool's response asks for and nobody has put."""
    del root
    asked = {
        _arguments(c).get("originalFunctionCall", {}).get("id")
        for c in _calls(events, CONFIRMATION)
    }
    for event in events:
        wanted = set(event.actions.requested_tool_confirmations)
        calls = next((one for one in events if wanted & _call_ids(one)), None)
        if not wanted or wanted & asked or calls is None:
            continue
        question = generate_request_confirmation_event(_context_of(event), calls, event)
        if question is not None:
            yield _beside(question, event, "confirm")


def missing_credentials(events: Sequence[Event], root: BaseNode) -> Iterator[Event]:
    """Requests for a credential that a tool's response asks for and nobody has made."""
    del root
    names = ("functionCallId", "function_call_id")
    asked = {_arguments(c).get(name) for c in _calls(events, CREDENTIAL) for name in names}
    for event in events:
        wanted = set(event.actions.requested_auth_configs)
        request = generate_auth_event(_context_of(event), event) if wanted - asked else None
        if request is not None:
            yield _beside(request, event, "credential")


def missing_ends(events: Sequence[Event], root: BaseNode) -> Iterator[Event]:
    """Marks that an agent has ended: after its final text, a transfer or a way out of a loop."""
    if not isinstance(root, BaseAgent):
        return
    last: dict[tuple[str, str | None], Event] = {}
    for event in events:
        place = (event.author, event.branch)
        if event.actions.end_of_agent:
            last.pop(place, None)
        elif _has_parts(event) and event.author != "user":
            last[place] = event
    for event in last.values():
        if _is_final_text(event) or _passes_on(event):
            yield _mark(event, EventActions(end_of_agent=True), "end")


def next_states(events: Sequence[Event], root: BaseNode) -> Iterator[Event]:
    """Where a sequence or a loop stands, when its agent has ended and that was not noted."""
    for agent in agents_of(root):
        if isinstance(agent, SequentialAgent | LoopAgent):  # pyright: ignore[reportDeprecated]
            yield from _next_state(agent, events)


def _next_state(agent: BaseAgent, events: Sequence[Event]) -> Iterator[Event]:
    noted = [place for place, event in enumerate(events) if _notes_state(event, agent.name)]
    if not noted or events[noted[-1]].actions.end_of_agent:
        return
    newest, since = events[noted[-1]], events[noted[-1] + 1 :]
    state = newest.actions.agent_state or {}
    current: str = state.get("current_sub_agent", "")
    names = [below.name for below in agent.sub_agents]
    ended = any(event.author == current and event.actions.end_of_agent for event in since)
    if not ended or current not in names:
        return
    following = names.index(current) + 1
    if isinstance(agent, LoopAgent):  # pyright: ignore[reportDeprecated]
        escalated = any(event.actions.escalate for event in since)
        actions = _loop_state(agent, names, following, state, escalated=escalated)
    elif following == len(names):
        actions = EventActions(end_of_agent=True)
    else:
        actions = EventActions(agent_state={"current_sub_agent": names[following]})
    yield _mark(newest, actions, "next")


def _loop_state(
    agent: LoopAgent,  # pyright: ignore[reportDeprecated]
    names: Sequence[str],
    following: int,
    state: dict[str, Any],
    *,
    escalated: bool,
) -> EventActions:
    rounds: int = state.get("times_looped", 0) + (following == len(names))
    most = agent.max_iterations
    if escalated or (following == len(names) and most is not None and rounds >= most):
        return EventActions(end_of_agent=True)
    name = names[following % len(names)]
    return EventActions(agent_state={"current_sub_agent": name, "times_looped": rounds})


REPAIRS: Final[Sequence[Repair]] = (
    missing_confirmations,
    missing_credentials,
    missing_ends,
    next_states,
)
"""In this order: each sees what those before it have written."""


def _has_parts(event: Event) -> bool:
    return bool(event.content and event.content.parts)


def _call_ids(event: Event) -> set[str | None]:
    return {call.id for call in event.get_function_calls()}


def _arguments(call: types.FunctionCall) -> JsonObject:
    return call.args or {}


def _calls(events: Sequence[Event], name: str) -> Iterator[types.FunctionCall]:
    for event in events:
        yield from (call for call in event.get_function_calls() if call.name == name)


def _is_final_text(event: Event) -> bool:
    if event.author == "user" or not _has_parts(event) or event.partial or event.interrupted:
        return False
    if event.get_function_calls() or event.get_function_responses():
        return False
    return not event.error_code and not event.actions.compaction and event.is_final_response()


def _passes_on(event: Event) -> bool:
    actions = event.actions
    leaves = actions.transfer_to_agent or actions.escalate or actions.skip_summarization
    waits = actions.requested_tool_confirmations or actions.requested_auth_configs
    return bool(event.get_function_responses() and leaves and not waits)


def _notes_state(event: Event, name: str) -> bool:
    noted = event.actions.agent_state is not None or event.actions.end_of_agent
    return bool(event.author == name and noted)


def _context_of(event: Event) -> InvocationContext:
    """As much of an invocation context as ADK's makers of questions look at."""
    context = SimpleNamespace(
        invocation_id=event.invocation_id,
        branch=event.branch,
        agent=SimpleNamespace(name=event.author),
    )
    return cast(InvocationContext, context)


def _beside(made: Event, event: Event, name: str) -> Event:
    made.id = f"{event.id}.{name}"
    made.node_info = event.node_info.model_copy()
    made.isolation_scope = event.isolation_scope
    return made


def _mark(event: Event, actions: EventActions, name: str) -> Event:
    where = {"output_for": None, "message_as_output": None}
    return Event(
        id=f"{event.id}.{name}",
        invocation_id=event.invocation_id,
        author=event.author,
        branch=event.branch,
        node_info=event.node_info.model_copy(update=where),
        isolation_scope=event.isolation_scope,
        actions=actions,
    )
