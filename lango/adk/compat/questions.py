"""The events by which ADK asks a person for a confirmation or a credential."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

from google.adk.agents.invocation_context import InvocationContext
from google.adk.events.event import Event
from google.adk.flows.llm_flows.functions import (
    generate_auth_event,
    generate_request_confirmation_event,
)


def confirmation_request(calls: Event, responses: Event) -> Event | None:
    """The question that follows the responses of calls that need a confirmation."""
    return generate_request_confirmation_event(_context_of(responses), calls, responses)


def credential_request(responses: Event) -> Event | None:
    """The question that follows the responses of calls that need a credential."""
    return generate_auth_event(_context_of(responses), responses)


def _context_of(event: Event) -> InvocationContext:
    """The fields of an invocation context that ADK's functions read."""
    context = SimpleNamespace(
        invocation_id=event.invocation_id,
        branch=event.branch,
        agent=SimpleNamespace(name=event.author),
    )
    return cast(InvocationContext, context)
