"""The hosts that this server answers for: protects against DNS rebinding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from lango.core.loopback import is_loopback
from lango.errors import ConfigError, WrongHostError
from lango.server.http.problems import answer

LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")
PROBES: Final = ("/healthz", "/readyz")
"""Exempt: probes use a machine's address, which is unknown beforehand, and disclose nothing."""


def allowed_hosts(address: str, configured_hosts: Sequence[str]) -> tuple[str, ...]:
    """The hosts of a server on an address: localhost, the address, and those of the settings."""
    if not configured_hosts and not is_loopback(address):
        raise ConfigError(
            f"Clients reach a server on {address} by a host name. List it in server.allowed_hosts: "
            "names, *.example.com for all below one, or * for any."
        )
    return (*LOOPBACK, address, *configured_hosts)


class AllowedHosts:
    """Refuses requests to hosts that are not allowed."""

    def __init__(self, app: ASGIApp, allowed: Sequence[str]) -> None:
        self.app = app
        self._allowed = frozenset(host.lower() for host in allowed)
        self._below = tuple(host[1:] for host in self._allowed if host.startswith("*."))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it."""
        if scope["type"] != "http" or scope["path"] in PROBES or self._is_allowed(scope):
            await self.app(scope, receive, send)
        else:
            await answer(WrongHostError(), scope)(scope, receive, send)

    def _is_allowed(self, scope: Scope) -> bool:
        hosts = Headers(scope=scope).getlist("host")
        if len(hosts) != 1:  # a proxy and a server might not read the same one
            return False
        host = host_of(hosts[0])
        return "*" in self._allowed or host in self._allowed or host.endswith(self._below)


def host_of(header: str) -> str:
    """The name in a Host header, without the port; an IPv6 address without its brackets."""
    if header.startswith("["):
        return header[1:].partition("]")[0].lower()
    return header.partition(":")[0].lower()
