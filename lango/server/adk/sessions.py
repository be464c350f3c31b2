"""Apps and sessions in ADK's API."""

from __future__ import annotations

import platform
from typing import Annotated, Any

from fastapi import APIRouter, Body, HTTPException, Query

from lango.adk.api.restored import NO_EVENTS, RestoredEvents, read_events
from lango.adk.versions import ADK_VERSION
from lango.core.values import JsonObject
from lango.errors import SessionExistsError, UnsupportedRequestError
from lango.server.adk.errors import AdkRoute, responses
from lango.server.adk.schemas import AdkSessionRequest, AdkStateRequest
from lango.server.adk.users import AdkUser, PathUser, SessionName
from lango.server.auth.callers import SECURED, AnyCaller
from lango.server.backend import Served
from lango.server.http.problems import responses as problems

router = APIRouter(
    tags=["adk"],
    dependencies=SECURED,
    route_class=AdkRoute,
    responses=responses(400, 401, 403, 422, 429, 503) | problems(421),
)
_SESSIONS = "/apps/{app_name}/users/{user_id}/sessions"
_SESSION = f"{_SESSIONS}/{{session_id}}"
_MISSING = responses(404)
_TAKEN = responses(404, 409, 413, 415)


@router.get("/list-apps")
async def adk_list_apps(
    _: AnyCaller,
    served: Served,
    detailed: Annotated[bool, Query(description="Not supported.")] = False,
) -> list[str]:
    """The names of the apps."""
    if detailed:
        raise UnsupportedRequestError("`detailed` is not supported: leave it out.")
    return list(served.options.apps)


@router.get("/version")
async def adk_version(_: AnyCaller) -> dict[str, str]:
    """The version of ADK whose API this is."""
    return {
        "version": ADK_VERSION,
        "language": "python",
        "language_version": platform.python_version(),
    }


@router.get(_SESSIONS, responses=_MISSING)
async def adk_list_sessions(user: PathUser) -> list[dict[str, Any]]:
    """The user's sessions without their events, the least recently updated first."""
    return await user.sessions.list()


@router.post(_SESSIONS, responses=_TAKEN)
async def adk_create_session(
    user: PathUser, new: AdkSessionRequest | None = None
) -> dict[str, Any]:
    """Create a session."""
    session_request = new or AdkSessionRequest()
    if session_request.options:
        raise UnsupportedRequestError(
            "Session options are not supported by the configured session service."
        )
    restored = read_events(session_request.events or (), user.served.options.files)
    if restored.events:
        await user.served.quotas.take_history(user.caller.tenant, restored.tokens)
    if restored.size:
        await user.served.quotas.take_bytes(user.caller.tenant, restored.size)
    return await _created(user, session_request.session_id, session_request.state, restored)


@router.post(_SESSION, responses=_TAKEN)
async def adk_create_session_with_id(
    user: PathUser,
    session_id: SessionName,
    state: Annotated[dict[str, Any] | None, Body()] = None,
) -> dict[str, Any]:
    """Create a session under an id of the client's own; the body is its state."""
    return await _created(user, session_id, state)


async def _created(
    user: AdkUser,
    session_id: str | None,
    state: JsonObject | None,
    restored: RestoredEvents = NO_EVENTS,
) -> JsonObject:
    try:
        return await user.sessions.create(session_id, state, restored.events)
    except SessionExistsError:
        raise HTTPException(409, f"Session already exists: {session_id}") from None


@router.get(_SESSION, responses=_MISSING)
async def adk_get_session(user: PathUser, session_id: SessionName) -> dict[str, Any]:
    """A session with all its events."""
    return await user.sessions.get(session_id)


@router.patch(_SESSION, responses=_TAKEN)
async def adk_update_session(
    user: PathUser, session_id: SessionName, change: AdkStateRequest
) -> JsonObject:
    """Change a session's state without running the agent."""
    return await user.sessions.update(session_id, change.state_delta)


@router.delete(_SESSION, responses=_MISSING)
async def adk_delete_session(user: PathUser, session_id: SessionName) -> None:
    """Delete a session with all its data, and stop its turns."""
    await user.sessions.delete(session_id)
