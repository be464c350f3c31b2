"""`lango serve`: sessions and turns over HTTP, with a worker in the same process."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from lango.cli.commands.worker import Apps
from lango.cli.options import Config, Url
from lango.cli.output.logs import LogFormatOption, log_access, log_as, log_warnings, say
from lango.cli.preflight import checked_settings, measure, require_server
from lango.server.listening import METRICS_OPTIONS, listen, require_free, web_address

if TYPE_CHECKING:
    from lango.app import Application

Host = Annotated[
    str | None,
    typer.Option(help="The address to serve on (default: `server.host`)."),
]
Port = Annotated[int | None, typer.Option(min=0, max=65535, help="The port; 0 for any free one.")]
Worker = Annotated[
    bool, typer.Option("--worker/--no-worker", help="Whether this process also runs turns.")
]
Insecure = Annotated[
    bool, typer.Option("--insecure-no-auth", help="Disable authentication (loopback only).")
]


def serve(
    apps: Apps = None,
    host: Host = None,
    port: Port = None,
    worker: Worker = True,
    insecure_no_auth: Insecure = False,
    log_format: LogFormatOption = None,
    url: Url = None,
    config: Config = None,
) -> None:
    """Serve sessions and turns over HTTP. Ctrl-C or SIGTERM drains; a second one exits."""
    require_server()
    log_warnings()
    log_as(log_format)
    loaded = checked_settings(url, config, apps or [])
    log_as(log_format, loaded.settings.log_format)
    server = loaded.settings.server
    if server.access_log:
        log_access(turns=worker)
    address = (host or server.host, server.port if port is None else port)
    require_free(*address)
    measure(loaded.settings)
    if loaded.settings.metrics.enabled:
        require_free(loaded.settings.metrics.host, loaded.settings.metrics.port, METRICS_OPTIONS)
    from lango.app import Application  # imports ADK, which takes seconds: errors above come first
    from lango.turns import event_loop

    application = Application(loaded)
    application.app_names(apps or [])  # an unknown app raises before a database is created
    event_loop.run(_serve(application, apps or [], address, worker, insecure_no_auth))


async def _serve(
    application: Application,
    names: list[str],
    address: tuple[str, int],
    with_worker: bool,
    open_: bool,
) -> None:
    from lango.server.app import create_app
    from lango.server.auth.policy import identity_for
    from lango.server.backend import options_of
    from lango.server.metrics import metrics_port
    from lango.server.process import serve

    settings = application.settings
    async with application:
        worker = await application.worker(names)
        options = options_of(settings, address[0], worker.apps)
        with listen(*address) as listening:
            host, port = address[0], int(listening.getsockname()[1])
            keeper = await identity_for(
                settings, application.store, host=host, port=port, insecure=open_
            )
            app = create_app(application, keeper.identity, options)
            drain = settings.worker.drain
            stop = f"; turns that still run have {drain:g} s to end" if with_worker else ""
            async with metrics_port(app, settings.metrics) as url:
                ready = [_started(worker.apps, listening, with_worker)]
                ready += [f"Metrics are at {url}."] if url else []
                await serve(
                    app,
                    listening,
                    worker=worker if with_worker else None,
                    drain=drain,
                    on_ready=lambda: say(*ready, *keeper.lines),
                    on_stop=lambda: say(f"Stopping{stop}."),
                )
    say("Stopped.")


def _started(apps: Sequence[str], listening: socket.socket, with_worker: bool) -> str:
    mode = "and running turns" if with_worker else "whose turns `lango worker` runs"
    return f"Serving {', '.join(apps)} at {web_address(*listening.getsockname()[:2])}, {mode}."
