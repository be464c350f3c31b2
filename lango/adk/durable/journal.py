"""Reads from an invocation's stored events which agents have run, wait, or run next.

Recovery is a function of these events alone. Nothing here awaits or writes; the gates in
`gated_agents.py` act on the journal. docs/adr/0017 explains the decision.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, cast

from google.adk.agents import (
    LoopAgent,  # pyright: ignore[reportDeprecated]  # people have them
    ParallelAgent,  # pyright: ignore[reportDeprecated]
    SequentialAgent,  # pyright: ignore[reportDeprecated]
)
from google.adk.agents.base_agent import BaseAgent
from google.adk.agents.llm_agent import LlmAgent
from google.adk.events.event import Event
from google.adk.workflow import BaseNode

from lango.adk.tools.approvals import CONFIRMATION, closed_waits
from lango.core.values import JsonObject

CONTAINERS: Final = (
    LoopAgent,  # pyright: ignore[reportDeprecated]
    ParallelAgent,  # pyright: ignore[reportDeprecated]
    SequentialAgent,  # pyright: ignore[reportDeprecated]
)
"""Agents that schedule their sub-agents themselves and record it in cursor events."""

Step = Literal["before", "end", "after"]
STEP: Final = "lango_step"
"""The key in an event's `custom_metadata` that names the step of an agent run it belongs to."""
TEMP: Final = "lango_temp"
"""The key for `temp:` state that a callback set: the store keeps it nowhere else."""
CLOSED: Final = ".closed."
"""Part of the ids of events that answer the open calls of a turn that will not run again."""


@dataclass(frozen=True, slots=True)
class AgentPosition:
    """The position of an agent in its tree."""

    name: str
    parent: str | None
    in_container: bool  # whether the parent is one of CONTAINERS
    names: frozenset[str]  # of the agent and all agents below it
    stores_end: bool = True  # whether its end mark is stored


def agent_positions(root: BaseNode) -> dict[str, AgentPosition]:
    """The positions of all agents of a tree, by name; names are unique in a tree."""
    if not isinstance(root, BaseAgent):
        return {}
    return {position.name: position for position in _positions_below(root)}


def _positions_below(agent: BaseAgent, parent: BaseAgent | None = None) -> Iterator[AgentPosition]:
    sub_positions = [
        position for sub in agent.sub_agents for position in _positions_below(sub, agent)
    ]
    yield AgentPosition(
        agent.name,
        parent.name if parent else None,
        isinstance(parent, CONTAINERS),
        frozenset({agent.name, *(position.name for position in sub_positions)}),
        not (parent is None and _ends_with_its_text(agent)),
    )
    yield from sub_positions


def _ends_with_its_text(agent: BaseAgent) -> bool:
    """Whether nothing follows the final text of a root agent: then an end mark adds nothing."""
    return isinstance(agent, LlmAgent) and not (agent.sub_agents or agent.after_agent_callback)


def root_container(positions: Mapping[str, AgentPosition]) -> str | None:
    """The root's name, if it is one of CONTAINERS."""
    containers = (position.parent for position in positions.values() if position.in_container)
    return next((name for name in containers if name and positions[name].parent is None), None)


def step_of(event: Event) -> Step | None:
    """The step that an event is marked with."""
    return (event.custom_metadata or {}).get(STEP)


def mark(event: Event, step: Step) -> None:
    """Mark an event with the step of the agent run that it belongs to."""
    event.custom_metadata = {**(event.custom_metadata or {}), STEP: step}


def is_end(event: Event) -> bool:
    """Whether an event marks the end of an agent's body."""
    return bool(event.actions.end_of_agent) or step_of(event) == "end"


def finishes(event: Event) -> bool:
    """Whether an event completes its agent: an end mark, a final text, or a way out."""
    if is_end(event):
        return True
    return step_of(event) is None and (is_final_text(event) or _ends_agent(event))


def is_final_text(event: Event) -> bool:
    """Whether an event is the complete final text of an agent."""
    if event.author == "user" or not has_parts(event) or event.partial or event.interrupted:
        return False
    if event.get_function_calls() or event.get_function_responses():
        return False
    return not event.error_code and not event.actions.compaction and event.is_final_response()


def _ends_agent(event: Event) -> bool:
    """Whether a tool's result ends its agent: a transfer, an escalation, or the final answer."""
    actions = event.actions
    leaves = actions.transfer_to_agent or actions.escalate or actions.skip_summarization
    asks = actions.requested_tool_confirmations or actions.requested_auth_configs
    return bool(event.get_function_responses() and leaves and not asks)


def has_parts(event: Event) -> bool:
    """Whether an event has content parts."""
    return bool(event.content and event.content.parts)


def open_waits(events: Sequence[Event], reopened: Collection[str] = ()) -> set[str]:
    """The questions and long-running calls that still wait for a person.

    `reopened` are calls whose mark was removed in memory (`hide_marks`).
    """
    marked = {call for event in events for call in event.long_running_tool_ids or ()}
    if reopened:
        marked |= {c.id or "" for e in events for c in e.get_function_calls()} & set(reopened)
    closing = (event for event in events if CLOSED in event.id)
    return marked.difference(_response_ids(closing), *map(closed_waits, events))


def _response_ids(events: Iterable[Event]) -> set[str]:
    return {response.id or "" for event in events for response in event.get_function_responses()}


def unfinished_agents(events: Iterable[Event]) -> set[str]:
    """The agents that have begun in a turn and not ended."""
    unfinished: set[str] = set()
    for event in events:
        if event.author == "user" or step_of(event) == "after":
            continue
        if finishes(event) or (step_of(event) == "before" and has_parts(event)):
            unfinished.discard(event.author)
        else:
            unfinished.add(event.author)
    return unfinished


def open_transfer(events: Sequence[Event]) -> str | None:
    """The target of the newest transfer, if agents have written only end marks since."""
    for event in reversed(events):
        target = event.actions.transfer_to_agent
        if target:
            return target
        if event.author != "user" and not is_end(event):
            return None
    return None


@dataclass(frozen=True, slots=True)
class SequencePosition:
    """The position of a sequence or loop: its current agent, and those before it in the round."""

    current: str | None = None
    rounds: int = 0
    finished: frozenset[str] = frozenset()

    def order(self, names: Sequence[str]) -> list[str]:
        """The agents still to run: the current one, then every one that has not run.

        A deploy may have removed or reordered agents. No finished agent runs again, and none is
        skipped.
        """
        first = [name for name in names if name == self.current]
        return [*first, *(n for n in names if n not in self.finished and n != self.current)]


@dataclass(frozen=True, slots=True)
class AgentRun:
    """One run of an agent within one turn, from the stored events."""

    name: str
    key: str  # the id of the event it began with: the same in every attempt
    events: Sequence[Event]  # since it began, by the agent, those below it, and the user
    turn_start: int  # the index of this turn's first event
    reopened: Collection[str] = ()

    @property
    def now(self) -> list[Event]:
        """The events of this turn, without the user's."""
        return [event for event in self.events[self.turn_start :] if event.author != "user"]

    @property
    def _own(self) -> list[Event]:
        return [event for event in self.now if event.author == self.name]

    @property
    def has_begun(self) -> bool:
        """Whether the before callback has run: any stored event comes after it."""
        return bool(self.now)

    @property
    def is_answered(self) -> bool:
        """Whether the before callback answered in the agent's place."""
        return any(step_of(event) == "before" and has_parts(event) for event in self._own)

    @property
    def body_done(self) -> bool:
        """Whether the body ended in this turn."""
        events = self._own
        if any(map(is_end, events)):
            return True
        messages = [event for event in events if has_parts(event) and step_of(event) is None]
        return bool(messages) and finishes(messages[-1])

    @property
    def after_done(self) -> bool:
        """Whether the after callback's event is stored."""
        events = self._own
        ends = [number for number, event in enumerate(events) if is_end(event)]
        later_events = events[ends[-1] + 1 :] if ends else []
        return bool(later_events) or any(step_of(event) == "after" for event in events)

    @property
    def ended_before(self) -> bool:
        """Whether the agent ended in an earlier turn of the invocation."""
        earlier = self.events[: self.turn_start]
        return any(event.author == self.name and is_end(event) for event in earlier)

    @property
    def waits(self) -> set[str]:
        """The calls of the run that still wait for a person."""
        return open_waits(self.events, self.reopened)

    @property
    def is_paused(self) -> bool:
        """Whether the body can do nothing until a person answers."""
        if not self.waits or self._confirmed():
            return False
        marked = {call for event in self.events for call in event.long_running_tool_ids or ()}
        if marked - _response_ids(self.events):
            return True
        return self.turn_start > 0 and not self.now and not self._is_addressed()

    def _confirmed(self) -> bool:
        """Whether a person has decided on a call whose result is not stored yet."""
        for number, event in enumerate(self.events):
            if event.author != "user":
                continue
            decided = _confirmed_calls(self.events, _response_ids([event]))
            if decided - _response_ids(self.events[number + 1 :]):
                return True
        return False

    def _is_addressed(self) -> bool:
        """Whether this turn's message answers a call of the run."""
        calls = {call.id for event in self.events for call in event.get_function_calls()}
        messages = [event for event in self.events[: self.turn_start] if event.author == "user"]
        return bool(messages and _response_ids(messages[-1:]) & calls)

    @property
    def escalates(self) -> bool:
        """Whether the agent, or one below it, asks the loop around it to end."""
        return any(event.actions.escalate for event in self.events)

    @property
    def has_state(self) -> bool:
        """Whether the agent has recorded in this run that its sub-agents run."""
        return any(
            event.author == self.name and event.actions.agent_state is not None
            for event in self.events
        )

    @property
    def cursor(self) -> SequencePosition:
        """The position of a sequence or loop."""
        states = [
            event.actions.agent_state
            for event in self.events
            if event.author == self.name and event.actions.agent_state
        ]
        if not states:
            return SequencePosition()
        rounds = _rounds(states[-1])
        current = str(states[-1].get("current_sub_agent", ""))
        earlier = {str(n.get("current_sub_agent")) for n in states[:-1] if _rounds(n) == rounds}
        return SequencePosition(current, rounds, frozenset(earlier - {current}))

    def temp_state(self, step: Step) -> JsonObject:
        """The `temp:` state that a callback of the run set."""
        state: JsonObject = {}
        for event in self._own:
            if step_of(event) == step:
                state |= (event.custom_metadata or {}).get(TEMP) or {}
        return state


def _rounds(state: Mapping[str, Any]) -> int:
    return int(state.get("times_looped", 0))


def _confirmed_calls(events: Sequence[Event], answered: Collection[str]) -> set[str]:
    """The calls whose confirmation questions are among those answered."""
    return {
        str(cast("JsonObject", (call.args or {}).get("originalFunctionCall") or {}).get("id"))
        for event in events
        for call in event.get_function_calls()
        if call.name == CONFIRMATION and call.id in answered
    }


def is_message(event: Event) -> bool:
    """Whether an event is a turn's first message, and not the input of a Workflow's node."""
    return event.author == "user" and not event.node_info.path


class Journal:
    """The stored events of one invocation, read agent run by agent run."""

    def __init__(
        self,
        events: Iterable[Event],
        invocation_id: str,
        agent_positions: Mapping[str, AgentPosition],
        reopened: Collection[str] = (),
    ) -> None:
        self._events = [event for event in events if event.invocation_id == invocation_id]
        self._agent_positions = agent_positions
        self._reopened = reopened
        message_indexes = [index for index, event in enumerate(self._events) if is_message(event)]
        self._turn = message_indexes[-1] + 1 if message_indexes else 0

    def run(self, name: str) -> AgentRun:
        """The newest run of an agent."""
        position = self._agent_positions[name]
        start = self._start(position)
        if start is None:
            return AgentRun(name, "", (), 0, self._reopened)
        own_events = [
            (number, event)
            for number, event in enumerate(self._events[start:], start)
            if event.author == "user" or event.author in position.names
        ]
        turn_start = sum(number < self._turn for number, _ in own_events)
        first = max(start, self._turn) - 1
        key = self._events[first].id if first >= 0 else ""
        return AgentRun(name, key, [event for _, event in own_events], turn_start, self._reopened)

    def _start(self, position: AgentPosition) -> int | None:
        """The index where an agent's newest run begins; None if its container has not begun it."""
        parent = self._agent_positions.get(position.parent or "")
        if parent is None:
            return (
                self._after(0, lambda event: event.actions.transfer_to_agent == position.name) or 0
            )
        start = self._start(parent)
        if start is None:
            return None
        if not position.in_container:
            return (
                self._after(start, lambda e: e.actions.transfer_to_agent == position.name) or start
            )
        return self._after(start, lambda event: _starts_agent(event, parent.name, position.name))

    def _after(self, first: int, begins: Callable[[Event], bool]) -> int | None:
        for number in range(len(self._events) - 1, first - 1, -1):
            if begins(self._events[number]):
                return number + 1
        return None


def _starts_agent(event: Event, container: str, name: str) -> bool:
    """Whether a cursor event starts the agent; a parallel agent's starts all its sub-agents."""
    state = event.actions.agent_state
    if event.author != container or state is None:
        return False
    return state.get("current_sub_agent", name) == name
