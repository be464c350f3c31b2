"""Canary of lango/adk/compat/contexts.py."""

from types import SimpleNamespace
from typing import Any

from tests.support.canary import Canary

CANARY = Canary.of_adk("contexts.py", "unique names of MCP tools in an agent")


def test_a_read_only_context_holds_the_invocation() -> None:
    kind = CANARY.part("agents.readonly_context", "ReadonlyContext")
    CANARY.contains(kind, "self._invocation_context = invocation_context")


def test_the_invocation_holds_the_agent() -> None:
    invocation = CANARY.part("agents.invocation_context", "InvocationContext")
    CANARY.check("agent" in invocation.model_fields, "InvocationContext", "the field agent")


def test_the_agent_of_a_context_is_found() -> None:
    from google.adk.agents.readonly_context import ReadonlyContext

    from lango.adk.compat.contexts import agent_of

    agent: Any = object()
    invocation: Any = SimpleNamespace(agent=agent)
    assert agent_of(ReadonlyContext(invocation)) is agent
    assert agent_of(None) is None
