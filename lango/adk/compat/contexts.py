"""The agent of a read-only context."""

from __future__ import annotations

from google.adk.agents.readonly_context import ReadonlyContext
from google.adk.workflow import BaseNode


def agent_of(context: ReadonlyContext | None) -> BaseNode | None:
    """The agent that is about to call its model; None if ADK does not expose it."""
    # ADK exposes the agent itself only on writable contexts.
    invocation = getattr(context, "_invocation_context", None)
    return getattr(invocation, "agent", None)
