"""Who is calling: every request says it by its credential, and nothing else says it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final, Protocol, cast

from fastapi import Depends, Request, Security
from fastapi.security import HTTPBearer

from lango.core.keys import CHAT
from lango.errors import ForbiddenError


@dataclass(frozen=True)
class Caller:
    """Who a request speaks for, and what it may do."""

    tenant: str
    user: str | None  # None: nobody was named, so only what belongs to nobody may be seen
    scopes: frozenset[str]
    key_id: str


@dataclass(frozen=True)
class NamedCaller(Caller):
    """A caller who speaks for a user."""

    user: str


class Identity(Protocol):
    """Tells callers by their requests."""

    async def caller(self, request: Request) -> Caller:
        """Who calls; UnauthorizedError if that is not known, ForbiddenError if it may not be."""
        ...


async def caller(request: Request) -> Caller:
    """The caller of this request."""
    identity = cast("Identity", request.app.state.identity)
    return await identity.caller(request)


AnyCaller = Annotated[Caller, Depends(caller)]


def named_caller(known: AnyCaller) -> NamedCaller:
    """The caller, if it speaks for a user: sessions and turns are always somebody's."""
    if CHAT not in known.scopes:
        raise ForbiddenError("This needs a credential with the scope chat.")
    if known.user is None:
        raise ForbiddenError("Say for whom you act: send the user's id as `Lango-User`.")
    return NamedCaller(known.tenant, known.user, known.scopes, known.key_id)


User = Annotated[NamedCaller, Depends(named_caller)]

# For the OpenAPI document alone: what a credential is worth, the identity says.
_bearer = HTTPBearer(auto_error=False, scheme_name="bearer", description="An API key, or a JWT.")
SECURED: Final = [Security(_bearer)]
