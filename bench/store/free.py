"""A session service that costs nothing: what a turn costs on it is what ADK itself costs."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

from google.adk.sessions.base_session_service import (
    BaseSessionService,
    GetSessionConfig,
    ListSessionsResponse,
)
from google.adk.sessions.session import Session

if TYPE_CHECKING:
    from google.adk.events.event import Event


class FreeSessionService(BaseSessionService):
    """Sessions in a dictionary, handed out as they are, never copied."""

    def __init__(self) -> None:
        self._sessions: dict[str, Session] = {}

    def put(self, events: list[Event], app_name: str, user_id: str) -> str:
        """A session that holds these events already."""
        session = Session(id=str(uuid.uuid4()), app_name=app_name, user_id=user_id)
        session.events = events
        self._sessions[session.id] = session
        return session.id

    async def create_session(
        self,
        *,
        app_name: str,
        user_id: str,
        state: dict[str, Any] | None = None,
        session_id: str | None = None,
    ) -> Session:
        """A new session."""
        session = Session(
            id=session_id or str(uuid.uuid4()),
            app_name=app_name,
            user_id=user_id,
            state=state or {},
        )
        return self._sessions.setdefault(session.id, session)

    async def get_session(
        self,
        *,
        app_name: str,  # noqa: ARG002
        user_id: str,  # noqa: ARG002
        session_id: str,
        config: GetSessionConfig | None = None,  # noqa: ARG002
    ) -> Session | None:
        """The session itself."""
        return self._sessions.get(session_id)

    async def list_sessions(
        self,
        *,
        app_name: str,  # noqa: ARG002
        user_id: str | None = None,  # noqa: ARG002
    ) -> ListSessionsResponse:
        """Return an empty list: no benchmark lists sessions."""
        return ListSessionsResponse()

    async def delete_session(
        self,
        *,
        app_name: str,  # noqa: ARG002
        user_id: str,  # noqa: ARG002
        session_id: str,
    ) -> None:
        """Forget the session."""
        self._sessions.pop(session_id, None)
