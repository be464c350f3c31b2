"""The app and user that a request of ADK's API names, checked against its credential."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Path, Request

from lango.adk.api.artifacts import ArtifactApi
from lango.adk.api.sessions import SessionApi
from lango.core.keys import ACT_AS, ADMIN
from lango.errors import SessionNotFoundError, UnknownAppError
from lango.server.auth.callers import AnyCaller, Caller, NamedCaller, named
from lango.server.auth.identity import USER_HEADER
from lango.server.backend import EndpointServices, Served
from lango.server.routes.schemas import Id

AppName = Annotated[Id, Path(description="An app of `list-apps`.")]
UserId = Annotated[Id, Path(description="The user of the credential.")]
SessionName = Annotated[Id, Path(description="The session's id: its `alias` in /v1.")]


@dataclass(frozen=True)
class AdkUser:
    """A user of an app, for whom the caller may act."""

    served: EndpointServices
    caller: NamedCaller
    app: str
    app_state: bool  # may read and change the state that all users of the app share

    @property
    def sessions(self) -> SessionApi:
        """The user's sessions."""
        caller = self.caller
        return SessionApi(
            self.served.store, caller.tenant, self.app, caller.user, app_state=self.app_state
        )

    def artifacts(self, session_id: str) -> ArtifactApi:
        """The artifacts of one of the user's sessions."""
        caller = self.caller
        return ArtifactApi(self.served.store, caller.tenant, self.app, caller.user, session_id)


def adk_user(
    request: Request, served: EndpointServices, caller: Caller, app: str, user: str
) -> AdkUser:
    """The user that a request names; SessionNotFoundError if the credential is another user's.

    A credential with the scope act_as acts for another user that the request names, and then loses
    the scope admin, as by the header `Lango-User`, which takes precedence.
    """
    may_name = ACT_AS in caller.scopes and USER_HEADER not in request.headers
    user_caller = named(caller, user if may_name and user != caller.user else None)
    if user_caller.user != user:
        raise SessionNotFoundError
    if app not in served.options.apps:
        raise UnknownAppError
    return AdkUser(served, user_caller, app, ADMIN in user_caller.scopes)


async def path_user(
    request: Request, caller: AnyCaller, served: Served, app_name: AppName, user_id: UserId
) -> AdkUser:
    """The user in the path."""
    return adk_user(request, served, caller, app_name, user_id)


PathUser = Annotated[AdkUser, Depends(path_user)]
