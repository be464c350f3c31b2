"""`lango serve`: sessions and turns over HTTP, with a worker in the same process."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from lango.cli.commands.worker import Apps
from lango.cli.options import Config, Url
from lango.cli.output.logs import log_access, log_warnings
from lango.cli.preflight import checked_settings, require_server
from lango.server.listening import listen, require_free

if TYPE_CHECKING:
    from lango.app import Application

Host = Annotated[
    str | None, typer.Option(help="The address to serve on; by default what the settings say.")
]
Port = Annotated[
    int | None, typer.Option(min=0, max=65535, help="The port; 0 for any that is free.")
]
Worker = Annotated[
    bool, typer.Option("--worker/--no-worker", help="Whether to run turns in this process, too.")
]
Insecure = Annotated[
    bool, typer.Option("--insecure-no-auth", help="Ask for no credential; on this machine alone.")
]


def serve(
    apps: Apps = None,
    host: Host = None,
    port: Port = None,
    worker: Worker = True,
    insecure_no_auth: Insecure = False,
    url: Url = None,
    config: Config = None,
) -> None:
    """Serve sessions and turns until Ctrl-C or SIGTERM, which let running turns end."""
    require_server()
    log_warnings()
    loaded = checked_settings(url, config, apps or [])
    server = loaded.settings.server
    if server.access_log:
        log_access()
    place = (host or server.host, server.port if port is None else port)
    require_free(*place)
    from lango.app import Application  # imports ADK, which takes seconds: errors above come first
    from lango.turns import event_loop

    application = Application(loaded)
    application.app_names(apps or [])  # an unknown app raises before a database is created
    event_loop.run(_serve(application, apps or [], place, worker, insecure_no_auth))


async def _serve(
    application: Application,
    names: list[str],
    place: tuple[str, int],
    with_worker: bool,
    open_: bool,
) -> None:
    from lango.server.app import create_app
    from lango.server.auth.policy import identity_for
    from lango.server.backend import options_of
    from lango.server.process import serve

    settings = application.settings
    async with application:
        worker = await application.worker(names)
        options = options_of(settings, place[0], worker.apps)
        with listen(*place) as listening:
            host, port = place[0], int(listening.getsockname()[1])
            keeper = await identity_for(
                settings, application.store, host=host, port=port, insecure=open_
            )
            ready = [_started(worker.apps, listening, with_worker), *keeper.lines]
            drain = settings.worker.drain
            await serve(
                create_app(application, keeper.identity, options),
                listening,
                worker=worker if with_worker else None,
                drain=drain,
                on_ready=lambda: say(*ready),
                on_stop=lambda: say(f"Stopping; turns that still run have {drain:g} s to end."),
            )
    say("Stopped.")


def _started(apps: Sequence[str], listening: socket.socket, with_worker: bool) -> str:
    how = "and running turns" if with_worker else "whose turns `lango worker` runs"
    return f"Serving {', '.join(apps)} at {web_address(listening)}, {how}."


def web_address(listening: socket.socket) -> str:
    """The URL of a server on this socket."""
    host, port = listening.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def say(*lines: str) -> None:
    """Print lines on standard error."""
    for line in lines:
        typer.echo(line, err=True)
