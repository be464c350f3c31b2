"""Agents whose steps (before callback, body, after callback) are skipped if the journal has them.

A claimed turn runs a clone of the user's tree in which every agent has one of these classes. ADK
copies agents while it runs them and keeps their class. An agent's position is therefore looked up
by its name (`ClaimedSessions.places`), never on the agent itself.
"""

from __future__ import annotations

import warnings
from collections.abc import AsyncGenerator
from contextlib import aclosing
from functools import cache
from typing import TYPE_CHECKING, Any, Final, cast

from google.adk.agents import (
    LoopAgent,  # pyright: ignore[reportDeprecated]  # people have them
    ParallelAgent,  # pyright: ignore[reportDeprecated]
    SequentialAgent,  # pyright: ignore[reportDeprecated]
)
from google.adk.agents.base_agent import BaseAgent, BaseAgentState
from google.adk.agents.invocation_context import InvocationContext
from google.adk.agents.llm_agent import LlmAgent
from google.adk.agents.loop_agent import LoopAgentState
from google.adk.agents.sequential_agent import SequentialAgentState
from google.adk.events.event import Event
from google.adk.workflow import BaseNode

from lango.adk.durable.claimed import ClaimedSessions
from lango.adk.durable.journal import TEMP, AgentRun, Journal, Step, is_end, stamp
from lango.adk.durable.ledger import Saving, saving
from lango.core.values import JsonObject, storable_json

_TEMP_STATE: Final = "temp:"

if TYPE_CHECKING:  # a mixin: at run time the agent's own class provides the rest
    _Agent = BaseAgent
    _Llm = LlmAgent
    _Sequential = SequentialAgent  # pyright: ignore[reportDeprecated]
    _Loop = LoopAgent  # pyright: ignore[reportDeprecated]
    _Parallel = ParallelAgent  # pyright: ignore[reportDeprecated]
else:
    _Agent = _Llm = _Sequential = _Loop = _Parallel = object


def journal_of(ctx: InvocationContext) -> Journal:
    """The journal of the invocation, as stored so far."""
    sessions = cast(ClaimedSessions, ctx.session_service)
    return Journal(ctx.session.events, ctx.invocation_id, sessions.places, sessions.unmarked)


class _Gated(_Agent):
    """Runs callbacks once: their event is stamped, and the journal finds it by its stamp."""

    __slots__ = ()

    async def _handle_agent_callbacks(
        self,
        ctx: InvocationContext,
        *,
        plugin_hook: Any,
        callbacks: Any,
        end_invocation_on_content: bool,
    ) -> Event | None:
        """Run the callbacks of one step, as ADK does. Plugin callbacks run in every attempt."""
        step: Step = "before" if end_invocation_on_content else "after"
        run = journal_of(ctx).run(self.name)
        if run.has_begun if step == "before" else run.after_done:
            callbacks = []
            ctx.session.state.update(run.temp_state(step))
        if step == "before" and run.is_answered:
            ctx.end_invocation = True
        token = saving.set(Saving(f"{ctx.invocation_id}/{self.name}.{step}/{run.key}", True))
        try:
            event = await super()._handle_agent_callbacks(
                ctx,
                plugin_hook=plugin_hook,
                callbacks=callbacks,
                end_invocation_on_content=end_invocation_on_content,
            )
        finally:
            saving.reset(token)
        if event is not None:
            _stamp(event, step)
        return event

    def _skip_body(self, ctx: InvocationContext) -> None:
        """Mark this agent as ended for the agents around it, as its body would."""
        ctx.set_agent_state(self.name, end_of_agent=True)


def _stamp(event: Event, step: Step) -> None:
    stamp(event, step)
    temp = {k: v for k, v in event.actions.state_delta.items() if k.startswith(_TEMP_STATE)}
    kept = _storable(temp)
    if kept:
        event.custom_metadata = {**(event.custom_metadata or {}), TEMP: kept}


def _storable(values: dict[str, Any]) -> JsonObject:
    """The values that JSON can hold; the others are lost with the process."""
    kept: JsonObject = {}
    for key, value in values.items():
        try:
            stored = storable_json(value)
        except (TypeError, ValueError):
            continue
        if stored == value:
            kept[key] = stored
    return kept


class _GatedLlm(_Gated, _Llm):
    """An LlmAgent whose body does not run if it is done or waits for a person."""

    __slots__ = ()

    async def _run_async_impl(self, ctx: InvocationContext) -> AsyncGenerator[Event, None]:
        run = journal_of(ctx).run(self.name)
        if run.body_done:
            self._skip_body(ctx)
            return
        if run.is_paused:
            return
        async with aclosing(super()._run_async_impl(ctx)) as events:
            async for event in events:
                if event.author == self.name and is_end(event) and self._waits(ctx):
                    ctx.set_agent_state(self.name)  # ADK takes a repeated call for an answer
                    continue
                yield event

    def _waits(self, ctx: InvocationContext) -> bool:
        return bool(journal_of(ctx).run(self.name).waits)


class _GatedSequence(_Gated, _Sequential):
    """A sequence that takes its position from the journal, and stops where an agent waits."""

    __slots__ = ()

    async def _run_async_impl(self, ctx: InvocationContext) -> AsyncGenerator[Event, None]:
        run = journal_of(ctx).run(self.name)
        if run.body_done or not self.sub_agents:
            self._skip_body(ctx)
            return
        agents = {agent.name: agent for agent in self.sub_agents}
        for name in run.cursor.order(list(agents)):
            if name != run.cursor.current:
                state = SequentialAgentState(current_sub_agent=name)
                ctx.set_agent_state(self.name, agent_state=state)
                yield self._create_agent_state_event(ctx)
            async with aclosing(agents[name].run_async(ctx)) as events:
                async for event in events:
                    yield event
            if journal_of(ctx).run(name).waits:
                return
        ctx.set_agent_state(self.name, end_of_agent=True)
        yield self._create_agent_state_event(ctx)


class _GatedLoop(_Gated, _Loop):
    """The same for a loop, whose cursor counts the rounds."""

    __slots__ = ()

    async def _run_async_impl(self, ctx: InvocationContext) -> AsyncGenerator[Event, None]:
        run = journal_of(ctx).run(self.name)
        if run.body_done or not self.sub_agents:
            self._skip_body(ctx)
            return
        agents = {agent.name: agent for agent in self.sub_agents}
        names, rounds, current = list(agents), run.cursor.rounds, run.cursor.current
        order, is_over = run.cursor.order(names), False
        while not is_over and (self.max_iterations is None or rounds < self.max_iterations):
            for name in order:
                if name != current:
                    state = LoopAgentState(current_sub_agent=name, times_looped=rounds)
                    ctx.set_agent_state(self.name, agent_state=state)
                    yield self._create_agent_state_event(ctx)
                current = None
                async with aclosing(agents[name].run_async(ctx)) as events:
                    async for event in events:
                        yield event
                done = journal_of(ctx).run(name)
                if done.waits:
                    return
                if done.escalates:
                    is_over = True
                    break
            order, rounds = names, rounds + 1
            ctx.reset_sub_agent_states(self.name)
        ctx.set_agent_state(self.name, end_of_agent=True)
        yield self._create_agent_state_event(ctx)


class _GatedParallel(_Gated, _Parallel):
    """A parallel agent that tells ADK from the journal which branches have ended."""

    __slots__ = ()

    async def _run_async_impl(self, ctx: InvocationContext) -> AsyncGenerator[Event, None]:
        journal = journal_of(ctx)
        run = journal.run(self.name)
        if run.body_done or not self.sub_agents:
            self._skip_body(ctx)
            return
        ctx.set_agent_state(self.name, agent_state=BaseAgentState() if run.has_state else None)
        runs = {agent.name: journal.run(agent.name) for agent in self.sub_agents}
        for agent in self.sub_agents:
            ctx.set_agent_state(agent.name, end_of_agent=_is_over(agent, runs[agent.name]))
        if any(_escalates_itself(each) for each in runs.values()):
            ctx.set_agent_state(self.name, end_of_agent=True)
            yield self._create_agent_state_event(ctx)
            return
        async with aclosing(super()._run_async_impl(ctx)) as events:
            async for event in events:
                yield event


def _is_over(agent: BaseAgent, run: AgentRun) -> bool:
    """Whether a branch has ended, including its after callback."""
    if run.waits:
        return False
    after_done = run.after_done or run.is_answered or not agent.after_agent_callback
    return run.ended_before or (run.body_done and after_done)


def _escalates_itself(run: AgentRun) -> bool:
    return any(event.author == run.name and event.actions.escalate for event in run.events)


_BODIES: Final[dict[type[BaseAgent], type[_Gated]]] = {
    LlmAgent: _GatedLlm,
    SequentialAgent: _GatedSequence,  # pyright: ignore[reportDeprecated]
    LoopAgent: _GatedLoop,  # pyright: ignore[reportDeprecated]
    ParallelAgent: _GatedParallel,  # pyright: ignore[reportDeprecated]
}


def runs_as_adk_does(agent: BaseNode, kind: type[BaseAgent]) -> bool:
    """Whether an agent is of a kind and has ADK's own run method of that kind."""
    own = getattr(type(agent), "_run_async_impl", None)
    return isinstance(agent, kind) and own is kind._run_async_impl  # pyright: ignore[reportPrivateUsage]


@cache
def _gated_class(agent: type[BaseAgent], body: type[_Gated]) -> type[BaseAgent]:
    names = {"__module__": agent.__module__, "__slots__": ()}
    with warnings.catch_warnings():  # ADK warns that each subclass of a container is deprecated
        warnings.simplefilter("ignore", DeprecationWarning)
        return cast("type[BaseAgent]", type(agent.__name__, (body, agent), names))


def gated(root: BaseNode) -> BaseNode:
    """A gated clone of an agent tree; other nodes are returned unchanged."""
    if not isinstance(root, BaseAgent):
        return root
    clone = root.clone()
    _gate(clone)
    return clone


def _gate(agent: BaseAgent) -> None:
    for below in agent.sub_agents:
        _gate(below)
    for kind, body in _BODIES.items():
        if runs_as_adk_does(agent, kind):
            agent.__class__ = _gated_class(type(agent), body)
            return
