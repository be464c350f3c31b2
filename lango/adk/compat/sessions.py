"""The helpers that ADK's session services inherit: they apply an event's state to a session."""

# pyright: reportPrivateUsage=false

from __future__ import annotations

from google.adk.events.event import Event
from google.adk.sessions.base_session_service import BaseSessionService
from google.adk.sessions.session import Session


def move_temp_state(service: BaseSessionService, session: Session, event: Event) -> None:
    """Apply an event's `temp:` state to the session object, and remove it from the event."""
    service._apply_temp_state(session, event)
    service._trim_temp_delta_state(event)


def update_state(service: BaseSessionService, session: Session, event: Event) -> None:
    """Apply an event's state to the session object."""
    service._update_session_state(session, event)
