"""How ADK's session services apply an event's state, and its models prepare loaded contents."""

# pyright: reportPrivateUsage=false

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from google.adk.events.event import Event
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.sessions.base_session_service import BaseSessionService
from google.adk.sessions.session import Session
from google.genai import types

Prepare = Callable[[list[types.Content]], list[types.Content]]
"""Prepares the contents of a request."""

_end_with_user: Final = BaseLlm._maybe_append_user_content


def move_temp_state(service: BaseSessionService, session: Session, event: Event) -> None:
    """Apply an event's `temp:` state to the session object, and remove it from the event."""
    service._apply_temp_state(session, event)
    service._trim_temp_delta_state(event)


def update_state(service: BaseSessionService, session: Session, event: Event) -> None:
    """Apply an event's state to the session object."""
    service._update_session_state(session, event)


def replace_contents(replacement: Prepare) -> None:
    """Patch the method that ADK's own models call before each request (idempotent)."""

    def end_with_user(self: BaseLlm, llm_request: LlmRequest) -> None:
        llm_request.contents = replacement(llm_request.contents)
        _end_with_user(self, llm_request)

    BaseLlm._maybe_append_user_content = end_with_user
