"""The methods by which ADK runs an agent: its body, its callbacks, and its state event."""

# pyright: reportPrivateUsage=false

from __future__ import annotations

import warnings
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from functools import cache, partial
from typing import Any, cast

from google.adk.agents.base_agent import BaseAgent
from google.adk.agents.invocation_context import InvocationContext
from google.adk.events.event import Event
from google.adk.workflow import BaseNode

Callbacks = Sequence[Any]
"""Callbacks of an agent, as it declares them."""
RunCallbacks = Callable[[Callbacks], Awaitable[Event | None]]
"""ADK's own run of these callbacks, after those of plugins."""
RunBody = Callable[[InvocationContext], AsyncGenerator[Event, None]]
"""ADK's own run of an agent's body."""
CallbacksHook = Callable[
    [BaseAgent, InvocationContext, bool, Callbacks, RunCallbacks], Awaitable[Event | None]
]
"""Runs the callbacks of an agent: those before its body if the flag is True, else those after."""
BodyHook = Callable[[BaseAgent, InvocationContext, RunBody], AsyncGenerator[Event, None]]
"""Runs the body of an agent."""


def runs_as_adk_does(agent: BaseNode, kind: type[BaseAgent]) -> bool:
    """Whether an agent is of a kind and has ADK's own run method of that kind."""
    implementation = getattr(type(agent), "_run_async_impl", None)
    return isinstance(agent, kind) and implementation is kind._run_async_impl


def state_event(agent: BaseAgent, ctx: InvocationContext) -> Event:
    """The event that stores an agent's current state."""
    return agent._create_agent_state_event(ctx)


def hook(agent: BaseAgent, callbacks: CallbacksHook, body: BodyHook) -> None:
    """Make an agent run its callbacks and its body by these functions."""
    agent.__class__ = _hooked_class(type(agent), callbacks, body)


@cache
def _hooked_class(
    kind: type[BaseAgent], callbacks_hook: CallbacksHook, body_hook: BodyHook
) -> type[BaseAgent]:
    async def handle_callbacks(
        self: BaseAgent,
        ctx: InvocationContext,
        *,
        plugin_hook: Any,
        callbacks: Callbacks,
        end_invocation_on_content: bool,
    ) -> Event | None:
        def run(callbacks: Callbacks) -> Awaitable[Event | None]:
            return kind._handle_agent_callbacks(
                self,
                ctx,
                plugin_hook=plugin_hook,
                callbacks=list(callbacks),
                end_invocation_on_content=end_invocation_on_content,
            )

        return await callbacks_hook(self, ctx, end_invocation_on_content, callbacks, run)

    def run_body(self: BaseAgent, ctx: InvocationContext) -> AsyncGenerator[Event, None]:
        return body_hook(self, ctx, partial(kind._run_async_impl, self))

    members = {
        "__module__": kind.__module__,
        "__slots__": (),
        "_handle_agent_callbacks": handle_callbacks,
        "_run_async_impl": run_body,
    }
    with warnings.catch_warnings():  # ADK warns that each subclass of a container is deprecated
        warnings.simplefilter("ignore", DeprecationWarning)
        return cast("type[BaseAgent]", type(kind.__name__, (kind,), members))
