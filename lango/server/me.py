"""Who the caller is, as its credential says."""

from __future__ import annotations

from fastapi import APIRouter
from pydantic import BaseModel, Field

from lango.server.callers import SECURED, AnyCaller
from lango.server.problems import responses

router = APIRouter(
    prefix="/v1/me",
    tags=["identity"],
    dependencies=SECURED,
    responses=responses(401, 403, 421, 422, 429, 503),
)


class Me(BaseModel):
    """Who a request speaks for, and what it may do."""

    tenant: str
    user: str | None = Field(description="Null if the credential names no user.")
    scopes: list[str]


@router.get("")
async def get_me(known: AnyCaller) -> Me:
    """Who the caller is here, and what its credential lets it do."""
    return Me(tenant=known.tenant, user=known.user, scopes=sorted(known.scopes))
