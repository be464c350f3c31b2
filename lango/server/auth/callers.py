"""The caller of a request, identified by its credential alone."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Annotated, Final, cast

from fastapi import Depends, Query, Request, Security
from fastapi.security import HTTPBearer

from lango.core.current import current_tenant
from lango.core.keys import ADMIN, CHAT, NO_LIMITS, KeyLimits
from lango.errors import ForbiddenError
from lango.server.routes.schemas import Id


@dataclass(frozen=True)
class Caller:
    """The tenant and user that a request acts for, and what it may do."""

    tenant: str
    user: str | None  # None: acts for no user, so it sees no user's sessions or turns unless admin
    scopes: frozenset[str]
    key_id: str  # of an API key, or made of the user that a token names
    limits: KeyLimits = NO_LIMITS


@dataclass(frozen=True)
class NamedCaller(Caller):
    """A caller that acts for a user."""

    user: str


class Identity(ABC):
    """Identifies the callers of requests."""

    @abstractmethod
    async def caller(self, request: Request) -> Caller:
        """The caller; UnauthorizedError if it is unknown, ForbiddenError if it is not allowed."""

    async def recheck(self, request: Request) -> None:
        """UnauthorizedError if the credential of a request is no longer valid."""
        del request

    async def admit(self, caller: Caller) -> None:
        """KeyLimitError if this caller may not have another turn now."""
        del caller

    async def limits_of(self, tenant: str, key_id: str) -> KeyLimits:
        """The limits of a caller that is not here: of the key or user that submitted a turn."""
        del tenant, key_id
        return NO_LIMITS


def identity_of(request: Request) -> Identity:
    """The identity of the request's application."""
    return cast("Identity", request.app.state.identity)


async def request_caller(request: Request) -> Caller:
    """The caller of this request, identified once per request."""
    caller = cast("Caller | None", getattr(request.state, "caller", None))
    if caller is None:
        caller = request.state.caller = await identity_of(request).caller(request)
        current_tenant.set(caller.tenant)
    return caller


async def recheck(request: Request) -> None:
    """UnauthorizedError if the credential of a request in progress is no longer valid."""
    await identity_of(request).recheck(request)


AnyCaller = Annotated[Caller, Depends(request_caller)]


async def named_caller(caller: AnyCaller) -> NamedCaller:
    """The caller, if it acts for a user: every session and turn belongs to one."""
    return named(caller)


def named(caller: Caller, user: str | None = None) -> NamedCaller:
    """The caller as the user that it acts for: its own, or `user`, which it may name.

    ForbiddenError without a user, or without the scope chat.
    """
    if user is not None:
        caller = replace(caller, user=user, scopes=caller.scopes - {ADMIN})
    if CHAT not in caller.scopes:
        raise ForbiddenError("This needs a credential with the scope chat.")
    if caller.user is None:
        raise ForbiddenError(
            "This key acts for no user: send the user's id as the header `Lango-User`."
        )
    return NamedCaller(caller.tenant, caller.user, caller.scopes, caller.key_id, caller.limits)


User = Annotated[NamedCaller, Depends(named_caller)]


@dataclass(frozen=True)
class View:
    """The users whose sessions and turns a request may see."""

    tenant: str
    user: str | None  # None: all users of the tenant


async def view(caller: AnyCaller) -> View:
    """What the caller may get by id: its user's resources, or as an admin all of its tenant."""
    if ADMIN in caller.scopes:
        return View(caller.tenant, None)
    return View(caller.tenant, named(caller).user)


async def listed_view(
    caller: AnyCaller,
    everyone: Annotated[
        bool, Query(description="Of every user of the tenant; needs the scope `admin`.")
    ] = False,
    user: Annotated[
        Id | None, Query(description="Of this user; another one needs the scope `admin`.")
    ] = None,
) -> View:
    """What a list contains: the user's own; for an admin that asks or has no user, also others'."""
    if ADMIN in caller.scopes and (everyone or user is not None or caller.user is None):
        return View(caller.tenant, user)
    if everyone or user not in (None, caller.user):
        raise ForbiddenError("Others' sessions need a credential with the scope admin.")
    return View(caller.tenant, named(caller).user)


async def admin(caller: AnyCaller) -> Caller:
    """The caller, if it has the scope admin; else ForbiddenError."""
    if ADMIN not in caller.scopes:
        raise ForbiddenError("This needs a credential with the scope admin.")
    return caller


Viewer = Annotated[View, Depends(view)]
ListViewer = Annotated[View, Depends(listed_view)]
Admin = Annotated[Caller, Depends(admin)]

# For the OpenAPI document only: the identity checks credentials.
_bearer = HTTPBearer(auto_error=False, scheme_name="bearer", description="An API key, or a JWT.")
SECURED: Final = [Security(_bearer)]
