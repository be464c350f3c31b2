"""Who is calling: every request says it by its credential, and nothing else says it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final, Protocol, cast, runtime_checkable

from fastapi import Depends, Query, Request, Security
from fastapi.security import HTTPBearer

from lango.core.keys import ADMIN, CHAT, NO_LIMITS, KeyLimits
from lango.core.tenants import current_tenant
from lango.errors import ForbiddenError
from lango.server.schemas import Id


@dataclass(frozen=True)
class Caller:
    """Who a request speaks for, and what it may do."""

    tenant: str
    user: str | None  # None: nobody was named, so only what belongs to nobody may be seen
    scopes: frozenset[str]
    key_id: str  # of an API key, or made of the user that a token names
    limits: KeyLimits = NO_LIMITS


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
    """The caller of this request, which the identity is asked for once."""
    known = cast("Caller | None", getattr(request.state, "caller", None))
    if known is None:
        identity = cast("Identity", request.app.state.identity)
        known = request.state.caller = await identity.caller(request)
        current_tenant.set(known.tenant)
    return known


@runtime_checkable
class Rechecks(Protocol):
    """An identity whose callers may lose what they were known by."""

    async def recheck(self, request: Request) -> None:
        """UnauthorizedError if the credential of a request is no longer good."""
        ...


async def recheck(request: Request) -> None:
    """UnauthorizedError if the caller of a request that is still being answered is gone."""
    identity = cast("object", request.app.state.identity)
    if isinstance(identity, Rechecks):
        await identity.recheck(request)


AnyCaller = Annotated[Caller, Depends(caller)]


async def named_caller(known: AnyCaller) -> NamedCaller:
    """The caller, if it speaks for a user: sessions and turns are always somebody's."""
    return _named(known)


def _named(known: Caller) -> NamedCaller:
    if CHAT not in known.scopes:
        raise ForbiddenError("This needs a credential with the scope chat.")
    if known.user is None:
        raise ForbiddenError("Say for whom you act: send the user's id as `Lango-User`.")
    return NamedCaller(known.tenant, known.user, known.scopes, known.key_id, known.limits)


User = Annotated[NamedCaller, Depends(named_caller)]


@dataclass(frozen=True)
class View:
    """Whose sessions and turns a request may see."""

    tenant: str
    user: str | None  # None: everybody's in the tenant


async def view(known: AnyCaller) -> View:
    """What the caller may see by its id: what is its user's, or all of its tenant as an admin."""
    if ADMIN in known.scopes:
        return View(known.tenant, None)
    return View(known.tenant, _named(known).user)


async def listed_view(
    known: AnyCaller,
    everyone: Annotated[
        bool, Query(description="Of every user of the tenant; needs the scope `admin`.")
    ] = False,
    user: Annotated[
        Id | None, Query(description="Of this user; another one needs the scope `admin`.")
    ] = None,
) -> View:
    """What a list is about: the caller's own, unless an admin asks for more, or is nobody."""
    if ADMIN in known.scopes and (everyone or user is not None or known.user is None):
        return View(known.tenant, user)
    if everyone or user not in (None, known.user):
        raise ForbiddenError("Others' sessions need a credential with the scope admin.")
    return View(known.tenant, _named(known).user)


async def admin(known: AnyCaller) -> Caller:
    """The caller, if it may see what is not one user's own."""
    if ADMIN not in known.scopes:
        raise ForbiddenError("This needs a credential with the scope admin.")
    return known


Viewer = Annotated[View, Depends(view)]
ListViewer = Annotated[View, Depends(listed_view)]
Admin = Annotated[Caller, Depends(admin)]

# For the OpenAPI document alone: what a credential is worth, the identity says.
_bearer = HTTPBearer(auto_error=False, scheme_name="bearer", description="An API key, or a JWT.")
SECURED: Final = [Security(_bearer)]
