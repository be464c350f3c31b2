"""Sessions: create, list, get, rename, delete, and read messages."""

from __future__ import annotations

import re
from hashlib import sha256
from typing import Annotated, Final

from fastapi import APIRouter, Depends, Path, Query, Response
from fastapi import status as http_status

from lango.core.ids import new_id
from lango.core.turns.states import TurnState
from lango.core.values import json_text, storable_text
from lango.errors import SessionExistsError, SessionNotFoundError, UnknownAppError
from lango.server.auth.callers import SECURED, ListViewer, NamedCaller, User, Viewer
from lango.server.backend import Served
from lango.server.http.bodies import JsonRoute
from lango.server.http.problems import responses
from lango.server.routes.schemas import (
    MAX_PAGE,
    MAX_TITLE,
    Id,
    IdempotencyKey,
    MessagePage,
    Moment,
    NewSession,
    Number,
    Session,
    SessionChange,
    SessionMessage,
    SessionPage,
)
from lango.store.sessions.entries import SessionKey
from lango.store.sessions.listing import SessionFilter, SessionSummary

router = APIRouter(
    prefix="/v1/sessions",
    tags=["sessions"],
    dependencies=SECURED,
    route_class=JsonRoute,
    responses=responses(401, 403, 421, 422, 429, 503),
)

OUR_ID: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")
"""The form of server-made ids; nothing else is looked up."""
PageSize = Annotated[int, Query(ge=1, le=MAX_PAGE)]
SequenceNumber = Annotated[Number | None, Query()]


SessionId = Annotated[str, Path(description="The session's `id`.")]


async def own_session(session_id: SessionId, user: User, served: Served) -> SessionSummary:
    """The session in the path; SessionNotFoundError if missing or another user's."""
    return await _find(served, user.tenant, user.user, session_id)


async def seen_session(session_id: SessionId, viewer: Viewer, served: Served) -> SessionSummary:
    """The session in the path; SessionNotFoundError if missing or not visible to the caller."""
    return await _find(served, viewer.tenant, viewer.user, session_id)


async def _find(served: Served, tenant: str, user: str | None, session_id: str) -> SessionSummary:
    if not OUR_ID.fullmatch(session_id):
        raise SessionNotFoundError
    return await served.store.find(tenant, user, session_id)


OwnSession = Annotated[SessionSummary, Depends(own_session)]
SeenSession = Annotated[SessionSummary, Depends(seen_session)]
Since = Annotated[Moment | None, Query(description="Not before this time.")]
Until = Annotated[Moment | None, Query(description="Before this time.")]
_BODY: Final = responses(400, 413, 415)
_MISSING: Final = responses(404)


@router.post("", status_code=http_status.HTTP_201_CREATED, responses=_BODY | responses(409))
async def create_session(
    new: NewSession,
    user: User,
    served: Served,
    response: Response,
    idempotency_key: IdempotencyKey = None,
) -> Session:
    """Create a session; a request with the same idempotency key returns the same session."""
    if new.app not in served.options.apps:
        raise UnknownAppError
    public_id = _public_id(user, idempotency_key)
    key = SessionKey(user.tenant, new.app, user.user, new.alias or public_id)
    try:
        stored = await served.store.create(key, title=new.title, public_id=public_id)
    except SessionExistsError:
        if idempotency_key is None or await _created_by_twin(served, key, public_id) is None:
            raise SessionExistsError("The alias or the idempotency key is taken.") from None
        created = await served.store.summary(key)
    else:  # a repeated request may find a session that has turns by now
        is_new = idempotency_key is None
        created = SessionSummary.of_new(stored) if is_new else await served.store.summary(key)
    response.headers["Location"] = f"{router.prefix}/{created.public_id}"
    return Session.of(created)


def _public_id(user: NamedCaller, idempotency_key: str | None) -> str:
    """A new id, or one derived from the idempotency key: the store then detects a repetition."""
    if idempotency_key is None:
        return new_id("ses")
    seed = json_text([user.tenant, user.user, idempotency_key])
    return f"ses_{sha256(seed.encode()).hexdigest()[:32]}"


async def _created_by_twin(
    served: Served, key: SessionKey, public_id: str
) -> SessionSummary | None:
    """The session, if an earlier request with the same idempotency key created it."""
    try:
        session = await served.store.find(key.tenant, key.user_id, public_id)
    except SessionNotFoundError:
        return None
    return session if session.key == key else None


@router.get("")
async def list_sessions(
    viewer: ListViewer,
    served: Served,
    app: Annotated[Id | None, Query(description="Filter by agent.")] = None,
    q: Annotated[str, Query(max_length=MAX_TITLE, description="Part of the title.")] = "",
    status: Annotated[TurnState | None, Query(description="Filter by status.")] = None,
    since: Since = None,
    until: Until = None,
    cursor: Annotated[str | None, Query(max_length=1_000, description="`next` of a page.")] = None,
    limit: PageSize = 50,
) -> SessionPage:
    """A page of the user's sessions, last active first; an admin can list other users' too."""
    page = await served.store.page(
        viewer.tenant,
        served.options.apps if app is None else app,
        viewer.user,
        wanted=SessionFilter(storable_text(q), status, since, until),
        cursor=cursor,
        limit=limit,
    )
    return SessionPage.of(page)


@router.get("/{session_id}", responses=_MISSING)
async def get_session(session: SeenSession) -> Session:
    """The current state of a session."""
    return Session.of(session)


@router.patch("/{session_id}", responses=_BODY | _MISSING)
async def rename_session(change: SessionChange, session: SeenSession, served: Served) -> Session:
    """Change the title of a session."""
    await served.store.rename(session.key, change.title)
    return Session.of(await served.store.summary(session.key))


@router.delete("/{session_id}", status_code=http_status.HTTP_204_NO_CONTENT, responses=_MISSING)
async def delete_session(session: SeenSession, served: Served) -> None:
    """Delete a session with all its data, and stop its running turns."""
    await served.store.delete(session.key, public_id=session.public_id)


@router.get("/{session_id}/messages", responses=_MISSING)
async def list_messages(
    session: SeenSession,
    served: Served,
    before: SequenceNumber = None,
    after: SequenceNumber = None,
    limit: PageSize = 50,
) -> MessagePage:
    """Messages in order: the newest, those before a number, or those after one."""
    messages = await served.store.messages(session.key, before=before, after=after, limit=limit + 1)
    is_forward = after is not None
    has_more = len(messages) > limit
    rows = (messages[:limit] if is_forward else messages[1:]) if has_more else messages
    older = rows[0].seq if rows and (is_forward or has_more) else None
    newer = rows[-1].seq if rows else after
    return MessagePage(messages=[SessionMessage.of(row) for row in rows], before=older, after=newer)
