"""Sessions as ADK's API server reads and writes them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final
from uuid import uuid4

from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions
from google.adk.sessions.base_session_service import GetSessionConfig
from google.adk.sessions.session import Session

from lango.adk.api.events import (
    APP_STATE,
    all_json,
    session_events,
    without_app_state,
)
from lango.adk.compat.public_events import redacted
from lango.adk.errors import SessionNotFoundError
from lango.adk.sessions.service import SessionServiceAdapter
from lango.adk.sessions.session import link_of, ref_of
from lango.adk.tools.approvals import History
from lango.core.values import JsonObject
from lango.errors import ForbiddenError
from lango.store.sessions.store import SqlSessionStore

_HEAD: Final = GetSessionConfig(num_recent_events=0)


class SessionApi:
    """The sessions of one user in an app; `app_state`: with the state that all its users share."""

    def __init__(
        self, store: SqlSessionStore, tenant: str, app: str, user: str, *, app_state: bool
    ) -> None:
        self._store = store
        self._service = SessionServiceAdapter(store, tenant=tenant, root_agent_name=app)
        self._of = {"app_name": app, "user_id": user}
        self._tenant = tenant
        self._app_state = app_state

    async def get(self, session_id: str) -> JsonObject:
        """A session with all its events; SessionNotFoundError if there is none."""
        session = await self._found(session_id, _HEAD)
        ref = ref_of(session, link_of(session), self._tenant)
        return self._json(session, await session_events(self._store, ref))

    async def list(self) -> list[JsonObject]:
        """The sessions without their events, the least recently updated first."""
        listed = await self._service.list_sessions(**self._of)
        return [self._json(session, ()) for session in listed.sessions]

    async def create(
        self, session_id: str | None, state: JsonObject | None, events: Sequence[Event] = ()
    ) -> JsonObject:
        """Create a session with a state and earlier events; SessionExistsError if it exists."""
        self._check_state(state)
        session = await self._service.create_session(**self._of, session_id=session_id, state=state)
        try:
            for event in events:
                await self._service.append_event(session, event)
        except BaseException:
            await asyncio.shield(self.delete(session.id))  # a client may retry under the same id
            raise
        return self._json(session, session.events)

    async def update(self, session_id: str, state_delta: JsonObject) -> JsonObject:
        """Change a session's state; SessionBusyError while one of its turns runs."""
        self._check_state(state_delta)
        session = await self._found(session_id, _HEAD)
        event = Event(
            invocation_id=f"p-{uuid4()}",
            author="user",
            actions=EventActions(state_delta=state_delta),
        )
        await self._service.append_event(session, event)
        return await self.get(session_id)

    async def delete(self, session_id: str) -> None:
        """Delete a session, if it exists."""
        await self._service.delete_session(**self._of, session_id=session_id)

    async def history(self, session_id: str) -> History:
        """The newest events of a session, with those of all calls that wait."""
        return (await self._found(session_id)).events

    def _check_state(self, state: JsonObject | None) -> None:
        if not self._app_state:
            check_state(state)

    async def _found(self, session_id: str, config: GetSessionConfig | None = None) -> Session:
        app, user = self._of["app_name"], self._of["user_id"]
        session = await self._service.get_session(
            app_name=app, user_id=user, session_id=session_id, config=config
        )
        if session is None:
            raise SessionNotFoundError
        return session

    def _json(self, session: Session, events: Any) -> JsonObject:
        state = session.state if self._app_state else without_app_state(session.state)
        return {
            "id": session.id,
            "appName": session.app_name,
            "userId": session.user_id,
            "state": redacted(state),
            "events": list(all_json(events, app_state=self._app_state)),
            "lastUpdateTime": session.last_update_time,
        }


def check_state(state: JsonObject | None) -> None:
    """ForbiddenError for a change of the app's state: all its users share it."""
    if any(key.startswith(APP_STATE) for key in state or ()):
        raise ForbiddenError(
            f"State under `{APP_STATE}` is shared by all users of the app: changing it needs a "
            "credential with the scope admin."
        )
