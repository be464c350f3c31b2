"""The server's backend and options, and the services that its endpoints share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Final, Literal, Protocol, cast

from fastapi import Depends, FastAPI, Request

from lango.config.server import AdkRoutes, FileSettings, QuotaSettings, ServerSettings
from lango.config.settings import Settings
from lango.server.auth.quotas import Quotas
from lango.server.health import Health
from lango.server.http.hosts import LOOPBACK, allowed_hosts
from lango.server.http.request_slots import RequestSlots
from lango.server.http.streams import HEARTBEAT, StreamLimits, Streams
from lango.store.sessions.store import SqlSessionStore
from lango.turns.service import Turns

_DEFAULTS: Final = ServerSettings()


class Backend(Protocol):
    """What the server needs of the application. Its creator opens and closes it."""

    @property
    def store(self) -> SqlSessionStore:
        """Where sessions and turns are kept."""
        ...

    def turns_for(self, tenant: str) -> Turns:
        """The turns of one tenant."""
        ...


@dataclass(frozen=True)
class ServerOptions:
    """The options of a server."""

    apps: tuple[str, ...] = ()  # the agents that sessions can be created for
    allowed_hosts: tuple[str, ...] = LOOPBACK  # "*" for any, "*.example.com" for subdomains
    trusted_proxies: tuple[str, ...] = ()  # addresses and networks
    max_body: int = _DEFAULTS.max_body  # bytes of JSON
    files: FileSettings = field(default_factory=FileSettings)
    quotas: QuotaSettings = field(default_factory=QuotaSettings)
    max_streams: int = _DEFAULTS.max_streams  # at a time, in this process
    max_streams_per_tenant: int | None = None
    max_streams_per_key: int | None = None
    heartbeat: float = HEARTBEAT  # seconds of silence before a comment
    openai_tasks: Literal["local", "turn"] = "local"
    adk_routes: AdkRoutes = "off"
    token_budget: int | None = 0  # tokens of a session that agents load; 0: default

    @property
    def streams(self) -> StreamLimits:
        """The limits of streams."""
        return StreamLimits(self.max_streams, self.max_streams_per_tenant, self.max_streams_per_key)


def options_of(settings: Settings, address: str, apps: Sequence[str]) -> ServerOptions:
    """The options of a server on an address, from the settings."""
    server = settings.server
    return ServerOptions(
        apps=tuple(apps),
        allowed_hosts=allowed_hosts(address, server.allowed_hosts),
        trusted_proxies=tuple(server.trusted_proxies),
        max_body=server.max_body,
        files=server.files,
        quotas=server.quotas,
        max_streams=server.max_streams,
        max_streams_per_tenant=server.max_streams_per_tenant,
        max_streams_per_key=server.max_streams_per_key,
        openai_tasks=server.openai_tasks,
        adk_routes=server.adk_routes,
        token_budget=settings.history.token_budget,
    )


@dataclass(frozen=True)
class EndpointServices:
    """The services of every endpoint."""

    backend: Backend
    options: ServerOptions
    streams: Streams
    quotas: Quotas
    health: Health
    slots: RequestSlots

    @property
    def store(self) -> SqlSessionStore:
        """Where sessions and turns are kept."""
        return self.backend.store


def provide(app: FastAPI, backend: Backend, options: ServerOptions) -> None:
    """Create the services of an application's endpoints."""
    app.state.services = EndpointServices(
        backend,
        options,
        Streams(options.streams, options.heartbeat),
        Quotas(lambda: backend.store.database, options.quotas),
        Health(),
        RequestSlots(),
    )


def services_of(app: FastAPI) -> EndpointServices:
    """The services of an application."""
    return cast("EndpointServices", app.state.services)


async def _served(request: Request) -> EndpointServices:
    return services_of(request.app)


Served = Annotated[EndpointServices, Depends(_served)]
