"""`lango dev`: ADK's own web UI, with the store and the agents of the settings."""

from __future__ import annotations

import tempfile
from typing import TYPE_CHECKING, Annotated

import typer

from lango.cli.commands.serve import Port
from lango.cli.commands.worker import Apps
from lango.cli.options import Config, Url
from lango.cli.output.logs import LogFormatOption, log_as, log_warnings, say
from lango.cli.preflight import checked_settings, require_server
from lango.server.listening import listen, require_free, require_loopback, web_address

if TYPE_CHECKING:
    from lango.app import Application

DEFAULT_PORT = 8001
Host = Annotated[str, typer.Option(help="The loopback address to serve on.")]


def dev(
    apps: Apps = None,
    host: Host = "127.0.0.1",
    port: Port = DEFAULT_PORT,
    log_format: LogFormatOption = None,
    url: Url = None,
    config: Config = None,
) -> None:
    """Serve ADK's web UI for your agents, on this machine only."""
    require_server()
    require_loopback(host)
    log_warnings()
    log_as(log_format)
    loaded = checked_settings(url, config, apps or [])
    log_as(log_format, loaded.settings.log_format)
    port = DEFAULT_PORT if port is None else port
    require_free(host, port)
    from lango.app import Application  # imports ADK, which takes seconds: errors above come first
    from lango.turns import event_loop

    event_loop.run(_serve(Application(loaded), apps or [], host, port))


async def _serve(application: Application, names: list[str], host: str, port: int) -> None:
    from lango.adk.apps.web import web_app
    from lango.adk.artifacts import SqlArtifactService
    from lango.adk.memory import SqlMemoryService
    from lango.adk.sessions.service import SessionServiceAdapter
    from lango.server.dev import serve_dev

    tenant = application.settings.store.tenant
    async with application:
        apps = {
            agent.runner.app.name: agent.runner.app for agent in await application.agents(names)
        }
        # The UI loads whole sessions; plugins limit what a model gets.
        sessions = SessionServiceAdapter(application.store, tenant=tenant, token_budget=None)
        artifacts = SqlArtifactService(application.store, tenant=tenant, requires_session=True)
        memory = SqlMemoryService(application.store, tenant=tenant, requires_session=True)
        with tempfile.TemporaryDirectory(prefix="lango-dev-") as folder:
            dev_app = web_app(apps, sessions, artifacts, memory, folder=folder, host=host)
            with listen(host, port) as listening:
                address = web_address(*listening.getsockname()[:2])
                message = f"ADK's web UI for {', '.join(apps)}: {address}/dev-ui/"
                await serve_dev(dev_app, listening, on_ready=lambda: say(message))
    say("Stopped.")
