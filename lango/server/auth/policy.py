"""Chooses the authentication mode at start-up; refuses unauthenticated public binds."""

from __future__ import annotations

from typing import Final, NamedTuple

from fastapi import Request

from lango.config.settings import Settings
from lango.core.keys import KeyText
from lango.core.loopback import is_loopback
from lango.errors import ConfigError, ForbiddenError
from lango.server.auth.callers import Caller, Identity
from lango.server.auth.identity import Credentials, Keys, RunKey, local_caller
from lango.server.auth.oidc import Tokens
from lango.server.http.hosts import host_of
from lango.server.listening import web_address
from lango.server.routes.console import PATH
from lango.store.keys import KeyStore
from lango.store.sessions.store import SqlSessionStore

_FORWARDED: Final = "x-forwarded-"


class AuthPolicy(NamedTuple):
    """The identity of a server, and the lines to print at its start."""

    identity: Identity
    lines: tuple[str, ...]


async def identity_for(
    settings: Settings, store: SqlSessionStore, *, host: str, port: int, insecure: bool = False
) -> AuthPolicy:
    """The identity of a server on that host.

    ConfigError if other machines can reach the host and no authentication is configured.
    """
    tenant, local = settings.store.tenant, is_loopback(host)
    if insecure:
        if not local:
            raise ConfigError(
                f"--insecure-no-auth accepts loopback addresses only, not {host}. "
                "Leave it out, or serve on 127.0.0.1."
            )
        return AuthPolicy(NoAuth(tenant), _open_lines(host, port))
    keys, oidc = Keys(store.database), settings.server.oidc
    if oidc is not None or await KeyStore(store.database).any():
        identity = Credentials(keys, None if oidc is None else Tokens(oidc))
        return AuthPolicy(identity, (_console_line(host, port),))
    if not local:
        raise ConfigError(
            f"{host} is not a loopback address, and no credential exists. Make a key with "
            "`lango keys create`, or set server.oidc; without, serve on 127.0.0.1."
        )
    key = KeyText.new()
    identity = Credentials(keys, run_key=RunKey(key, tenant))  # also accepts keys created later
    return AuthPolicy(identity, _key_lines(host, port, key))


class NoAuth(Identity):
    """Treats every caller as the local user, but refuses requests that may come from elsewhere.

    A web page can make a browser send requests here, also through a host name of its own that
    resolves to this machine (DNS rebinding); and a proxy on this machine could admit others.
    """

    def __init__(self, tenant: str) -> None:
        self._tenant = tenant

    async def caller(self, request: Request) -> Caller:
        """The local user; ForbiddenError if the request may come from elsewhere."""
        _refuse_others(request)
        return local_caller(request, self._tenant)


def _refuse_others(request: Request) -> None:
    headers = request.headers
    if any(name == "forwarded" or name.startswith(_FORWARDED) for name in headers):
        raise ForbiddenError("Without credentials the server refuses requests from a proxy.")
    if request.client is not None and not is_loopback(request.client.host):
        raise ForbiddenError(
            "Without credentials the server refuses requests from another machine."
        )
    hosts = headers.getlist("host")
    if len(hosts) != 1 or not is_loopback(host_of(hosts[0])):
        raise ForbiddenError("Without credentials this server is localhost, and no other host.")
    origins = headers.getlist("origin")
    if any(origin.partition("://")[2].lower() != hosts[0].lower() for origin in origins):
        raise ForbiddenError(
            "Without credentials the server refuses requests from a page of another site."
        )


def _console_line(host: str, port: int) -> str:
    return f"The console is at {web_address(host, port)}{PATH}/."


def _open_lines(host: str, port: int) -> tuple[str, ...]:
    address = web_address(host, port)
    return (
        f"{address} has no authentication: every user of this machine can do anything there.",
        _console_line(host, port),
    )


def _key_lines(host: str, port: int, key: KeyText) -> tuple[str, ...]:
    return (
        "There are no API keys yet (`lango keys create`): only this machine can reach the server,",
        "with a key for this run:",
        f"  {web_address(host, port)}{PATH}/#key={key.text}",
        f"  curl -H 'Authorization: Bearer {key.text}' {web_address(host, port)}/v1/agents",
    )
