"""Agents whose steps (before callback, body, after callback) are skipped if the journal has them.

A claimed turn runs a clone of the user's tree in which every agent runs its steps by these
functions. ADK copies agents while it runs them and keeps their class. An agent's position is
therefore looked up by its name (`ClaimedSessions.agent_positions`), never on the agent itself.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, Final, cast

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

from lango.adk.compat.agents import (
    BodyHook,
    Callbacks,
    RunBody,
    RunCallbacks,
    hook,
    runs_as_adk_does,
    state_event,
)
from lango.adk.durable.claimed.sessions import ClaimedSessions
from lango.adk.durable.journal import TEMP, AgentRun, Journal, Step, is_end, mark
from lango.adk.durable.ledger import RunningCall, saving
from lango.core.values import JsonObject, storable_json

_TEMP_STATE: Final = "temp:"


def journal_of(ctx: InvocationContext) -> Journal:
    """The journal of the invocation, as stored so far."""
    sessions = _claimed(ctx)
    return Journal(
        ctx.session.events, ctx.invocation_id, sessions.agent_positions, sessions.unmarked
    )


def _claimed(ctx: InvocationContext) -> ClaimedSessions:
    return cast(ClaimedSessions, ctx.session_service)


async def _run_callbacks(
    agent: BaseAgent,
    ctx: InvocationContext,
    is_before: bool,
    callbacks: Callbacks,
    run_callbacks: RunCallbacks,
) -> Event | None:
    """Run callbacks once: their event is marked, and the journal finds it by its mark.

    Plugin callbacks run in every attempt.
    """
    step: Step = "before" if is_before else "after"
    run = journal_of(ctx).run(agent.name)
    if run.has_begun if is_before else run.after_done:
        callbacks = []
        ctx.session.state.update(run.temp_state(step))
    if is_before and run.is_answered:
        ctx.end_invocation = True
    token = saving.set(RunningCall(f"{ctx.invocation_id}/{agent.name}.{step}/{run.key}", True))
    try:
        event = await run_callbacks(callbacks)
    finally:
        saving.reset(token)
    if event is not None:
        _stamp(event, step)
    return event


def _skip_body(agent: BaseAgent, ctx: InvocationContext) -> None:
    """Mark an agent as ended for the agents around it, as its body would."""
    ctx.set_agent_state(agent.name, end_of_agent=True)


def _stamp(event: Event, step: Step) -> None:
    mark(event, step)
    temp = {k: v for k, v in event.actions.state_delta.items() if k.startswith(_TEMP_STATE)}
    stored = _storable(temp)
    if stored:
        event.custom_metadata = {**(event.custom_metadata or {}), TEMP: stored}


def _storable(values: dict[str, Any]) -> JsonObject:
    """The values that JSON can hold; the others are lost with the process."""
    storable: JsonObject = {}
    for key, value in values.items():
        try:
            stored = storable_json(value)
        except (TypeError, ValueError):
            continue
        if stored == value:
            storable[key] = stored
    return storable


async def _run_llm(
    agent: BaseAgent, ctx: InvocationContext, run_body: RunBody
) -> AsyncGenerator[Event, None]:
    """Run the body of an LlmAgent, unless it is done or waits for a person."""
    run = journal_of(ctx).run(agent.name)
    if run.body_done:
        _skip_body(agent, ctx)
        return
    if run.is_paused:
        return
    async with aclosing(run_body(ctx)) as events:
        async for event in events:
            if event.author == agent.name and is_end(event):
                run = journal_of(ctx).run(agent.name)
                if run.waits:
                    ctx.set_agent_state(agent.name)  # ADK takes a repeated call for an answer
                    continue
                if run.body_done and not _claimed(ctx).agent_positions[agent.name].stores_end:
                    continue
            yield event


async def _run_sequence(
    agent: BaseAgent, ctx: InvocationContext, run_body: RunBody
) -> AsyncGenerator[Event, None]:
    """Run a sequence from the journal's position, up to an agent that waits."""
    del run_body
    run = journal_of(ctx).run(agent.name)
    if run.body_done or not agent.sub_agents:
        _skip_body(agent, ctx)
        return
    agents = {sub_agent.name: sub_agent for sub_agent in agent.sub_agents}
    for name in run.cursor.order(list(agents)):
        if name != run.cursor.current:
            state = SequentialAgentState(current_sub_agent=name)
            ctx.set_agent_state(agent.name, agent_state=state)
            yield state_event(agent, ctx)
        async with aclosing(agents[name].run_async(ctx)) as events:
            async for event in events:
                yield event
        if journal_of(ctx).run(name).waits:
            return
    ctx.set_agent_state(agent.name, end_of_agent=True)
    yield state_event(agent, ctx)


async def _run_loop(
    agent: BaseAgent, ctx: InvocationContext, run_body: RunBody
) -> AsyncGenerator[Event, None]:
    """Run a loop in the same way; its cursor counts the rounds."""
    del run_body
    limit = cast("LoopAgent", agent).max_iterations  # pyright: ignore[reportDeprecated]
    run = journal_of(ctx).run(agent.name)
    if run.body_done or not agent.sub_agents:
        _skip_body(agent, ctx)
        return
    agents = {sub_agent.name: sub_agent for sub_agent in agent.sub_agents}
    names, rounds, current = list(agents), run.cursor.rounds, run.cursor.current
    order, is_over = run.cursor.order(names), False
    while not is_over and (limit is None or rounds < limit):
        for name in order:
            if name != current:
                state = LoopAgentState(current_sub_agent=name, times_looped=rounds)
                ctx.set_agent_state(agent.name, agent_state=state)
                yield state_event(agent, ctx)
            current = None
            async with aclosing(agents[name].run_async(ctx)) as events:
                async for event in events:
                    yield event
            agent_run = journal_of(ctx).run(name)
            if agent_run.waits:
                return
            if agent_run.escalates:
                is_over = True
                break
        order, rounds = names, rounds + 1
        ctx.reset_sub_agent_states(agent.name)
    ctx.set_agent_state(agent.name, end_of_agent=True)
    yield state_event(agent, ctx)


async def _run_parallel(
    agent: BaseAgent, ctx: InvocationContext, run_body: RunBody
) -> AsyncGenerator[Event, None]:
    """Run a parallel agent; the journal tells ADK which branches have ended."""
    journal = journal_of(ctx)
    run = journal.run(agent.name)
    if run.body_done or not agent.sub_agents:
        _skip_body(agent, ctx)
        return
    ctx.set_agent_state(agent.name, agent_state=BaseAgentState() if run.has_state else None)
    runs = {branch.name: journal.run(branch.name) for branch in agent.sub_agents}
    for branch in agent.sub_agents:
        ctx.set_agent_state(branch.name, end_of_agent=_is_over(branch, runs[branch.name]))
    if any(_escalates_itself(branch_run) for branch_run in runs.values()):
        ctx.set_agent_state(agent.name, end_of_agent=True)
        yield state_event(agent, ctx)
        return
    async with aclosing(run_body(ctx)) as events:
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


_BODIES: Final[dict[type[BaseAgent], BodyHook]] = {
    LlmAgent: _run_llm,
    SequentialAgent: _run_sequence,  # pyright: ignore[reportDeprecated]
    LoopAgent: _run_loop,  # pyright: ignore[reportDeprecated]
    ParallelAgent: _run_parallel,  # pyright: ignore[reportDeprecated]
}


def gated(root: BaseNode) -> BaseNode:
    """A gated clone of an agent tree; other nodes are returned unchanged."""
    if not isinstance(root, BaseAgent):
        return root
    clone = root.clone()
    _gate(clone)
    return clone


def _gate(agent: BaseAgent) -> None:
    for sub_agent in agent.sub_agents:
        _gate(sub_agent)
    for kind, body in _BODIES.items():
        if runs_as_adk_does(agent, kind):
            hook(agent, _run_callbacks, body)
            return
