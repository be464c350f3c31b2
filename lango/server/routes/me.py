"""The caller's identity, from its credential."""

from __future__ import annotations

from fastapi import APIRouter
from pydantic import BaseModel, Field

from lango.server.auth.callers import SECURED, AnyCaller
from lango.server.http.bodies import JsonRoute
from lango.server.http.problems import responses

router = APIRouter(
    prefix="/v1/me",
    tags=["identity"],
    dependencies=SECURED,
    route_class=JsonRoute,
    responses=responses(401, 403, 421, 422, 429, 503),
)


class Me(BaseModel):
    """The tenant and user that a request acts for, and its scopes."""

    tenant: str
    user: str | None = Field(description="Null if the credential names no user.")
    scopes: list[str]


@router.get("")
async def get_me(caller: AnyCaller) -> Me:
    """The caller's tenant and user, and the scopes of its credential."""
    return Me(tenant=caller.tenant, user=caller.user, scopes=sorted(caller.scopes))
