"""The credentials of users for tools: list, delete, and the way back from an OAuth provider."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from html import escape
from typing import Annotated, Final

from fastapi import APIRouter, Path, Query, Request, Response, status
from pydantic import BaseModel, Field

from lango.core.times import moment
from lango.errors import CredentialNotFoundError, CredentialRefusedError, LangoError
from lango.server.auth.callers import SECURED, NamedCaller, User, identity_of, request_caller
from lango.server.auth.limits import Admission
from lango.server.backend import EndpointServices, Served
from lango.server.http.bodies import JsonRoute
from lango.server.http.problems import responses, status_of
from lango.server.routes.schemas import Id
from lango.store.credentials.store import CALLBACK_PATH, CredentialSummary
from lango.store.db.clock import seconds
from lango.store.turns.rows import Turn
from lango.turns.credentials import consent_request

router = APIRouter(
    prefix="/v1/credentials",
    tags=["credentials"],
    dependencies=SECURED,
    route_class=JsonRoute,
    responses=responses(401, 403, 421, 422, 429, 503),
)
callback = APIRouter(include_in_schema=False)

_CONNECTED: Final = "Connected. You can close this page: the agent continues."
_REFUSED: Final = "The provider did not grant access. Open the link again to retry."
_PAGE: Final = (
    '<!doctype html><html lang="en"><meta charset="utf-8"><title>lango</title><p>{text}</p></html>'
)
_HEADERS: Final = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
_MAX_STATE: Final = 512


class Credential(BaseModel):
    """A stored credential, without its content."""

    id: str
    app: str
    name: str = Field(description="ADK's credential key.")
    kind: str
    created: datetime
    updated: datetime

    @classmethod
    def of(cls, stored: CredentialSummary) -> Credential:
        """A credential of the store."""
        return cls(
            id=stored.id,
            app=stored.app_name,
            name=stored.name,
            kind=stored.kind,
            created=moment(seconds(stored.created)),
            updated=moment(seconds(stored.updated)),
        )


class CredentialList(BaseModel):
    """The credentials of the user."""

    credentials: list[Credential]


@router.get("")
async def list_credentials(
    user: User,
    served: Served,
    app: Annotated[Id | None, Query(description="Filter by agent.")] = None,
) -> CredentialList:
    """The user's credentials for tools, by agent and name."""
    stored = await served.store.credentials.list(user.tenant, user.user, app)
    return CredentialList(credentials=[Credential.of(credential) for credential in stored])


@router.delete("/{credential_id}", status_code=status.HTTP_204_NO_CONTENT, responses=responses(404))
async def delete_credential(
    credential_id: Annotated[Id, Path(description="The credential's `id`.")],
    user: User,
    served: Served,
) -> Response:
    """Delete a credential: tools that need it ask for it again. The provider is not informed."""
    await served.store.credentials.delete(user.tenant, user.user, credential_id)
    return Response(status_code=status.HTTP_204_NO_CONTENT)


@callback.get(CALLBACK_PATH)
async def credential_callback(
    request: Request,
    served: Served,
    state: Annotated[str, Query(max_length=_MAX_STATE)] = "",
    code: Annotated[str, Query()] = "",
) -> Response:
    """Take the user back from an OAuth provider, and answer the call that waits for the consent.

    The browser brings no credential of lango: the state, which is random and names the call,
    stands for it. A caller that does send a credential must be the user that the call belongs to.
    """
    try:
        await _answer(request, served, state, code)
    except LangoError as error:
        text = str(error) if status_of(error) < status.HTTP_500_INTERNAL_SERVER_ERROR else ""
        return _page(text or "Something went wrong here. Open the link again.", status_of(error))
    return _page(_CONNECTED, status.HTTP_200_OK)


async def _answer(request: Request, served: EndpointServices, state: str, code: str) -> None:
    consent = await consent_request(served.store.credentials, state)
    if request.headers.get("authorization"):
        caller = await request_caller(request)
        if (caller.tenant, caller.user) != (consent.owner.tenant, consent.owner.user_id):
            raise CredentialNotFoundError
    if not code:
        raise CredentialRefusedError(_REFUSED)
    turns = served.backend.turns_for(consent.owner.tenant)
    admit = partial(_admit, request, served)
    await turns.answer_consent(state, str(request.url), admit=admit)


async def _admit(request: Request, served: EndpointServices, asking_turn: Turn) -> None:
    """Count the turn that continues another one for that one's caller, under its limits."""
    session, key_id = asking_turn.session, asking_turn.key_id or ""
    limits = await identity_of(request).limits_of(session.tenant, key_id)
    submitter = NamedCaller(session.tenant, session.user_id, frozenset(), key_id, limits)
    await Admission(request, submitter, served).take()


def _page(text: str, code: int) -> Response:
    return Response(_PAGE.format(text=escape(text)), code, _HEADERS, "text/html; charset=utf-8")
