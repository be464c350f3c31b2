"""`lango worker`: runs turns that any process has submitted to the database."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Annotated, Final

import typer

from lango.cli.options import Config, Url
from lango.cli.output.logs import log_warnings
from lango.cli.preflight import checked_settings, require_server
from lango.server.listening import listen, require_free

if TYPE_CHECKING:
    import asyncio

    from lango.app import Application
    from lango.turns.worker import TurnWorker

Apps = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[APPS]...",
        help="Apps of the settings, or package.module:attribute; all of the settings if none.",
        show_default=False,
    ),
]
Concurrency = Annotated[
    int | None,
    typer.Option(min=1, help="Turns at a time; by default what the settings say."),
]
ProbePort = Annotated[
    int | None,
    typer.Option(
        min=0,
        max=65535,
        help="Answer /healthz and /readyz on this port of `server.host`; 0 for any that is free.",
    ),
]
_PROBE_OPTIONS: Final = ("--probe-port", "the setting server.host")


def worker(
    apps: Apps = None,
    concurrency: Concurrency = None,
    probe_port: ProbePort = None,
    url: Url = None,
    config: Config = None,
) -> None:
    """Run turns until stopped. The first Ctrl-C or SIGTERM drains; the second exits at once."""
    log_warnings(turns=True)
    loaded = checked_settings(url, config, apps or [])
    if probe_port is not None:
        require_server()
        require_free(loaded.settings.server.host, probe_port, _PROBE_OPTIONS)
    from lango.app import Application  # imports ADK, which takes seconds: errors above come first
    from lango.turns import event_loop

    application = Application(loaded)
    application.app_names(apps or [])  # an unknown app raises before a database is created
    event_loop.run(_work(application, apps or [], concurrency, probe_port))


async def _work(
    application: Application, names: list[str], concurrency: int | None, probe_port: int | None
) -> None:
    async with application:
        worker = await application.worker(names, concurrency=concurrency)
        if probe_port is None:
            await _run(application, worker)
        else:
            await _run_with_probes(application, worker, probe_port)
    _say("Stopped.")


async def _run(application: Application, worker: TurnWorker) -> None:
    import asyncio

    from lango.adk.apps.preload import warm_up

    stop_requested = asyncio.Event()
    await warm_up()
    _hear_signals(stop_requested)
    await worker.start()
    _say(_started(application, worker))
    await stop_requested.wait()
    _say(_stopping(application, worker))
    await worker.stop(application.settings.worker.drain)


async def _run_with_probes(application: Application, worker: TurnWorker, port: int) -> None:
    from lango.server.process import serve
    from lango.server.routes.probes import create_probes

    with listen(application.settings.server.host, port, _PROBE_OPTIONS) as listening:
        answers = f"Probes are answered on port {listening.getsockname()[1]}."
        await serve(
            create_probes(application),
            listening,
            worker=worker,
            drain=application.settings.worker.drain,
            on_ready=lambda: _say(f"{_started(application, worker)} {answers}"),
            on_stop=lambda: _say(_stopping(application, worker)),
        )


def _started(application: Application, worker: TurnWorker) -> str:
    from lango.store.db.connection_errors import place

    return (
        f"Running turns of {', '.join(worker.apps)}, up to {worker.options.concurrency} at a "
        f"time, from {place(application.store.database.url)}."
    )


def _stopping(application: Application, worker: TurnWorker) -> str:
    drain = application.settings.worker.drain
    match worker.running:
        case 0:
            return "Stopping; no turn is running."
        case 1:
            return f"Stopping; 1 turn is still running and has {drain:g} s to end."
        case many:
            return f"Stopping; {many} turns are still running and have {drain:g} s to end."


def _hear_signals(stop_requested: asyncio.Event) -> None:
    import asyncio

    loop = asyncio.get_running_loop()
    both = (signal.SIGTERM, signal.SIGINT)

    def stop() -> None:
        stop_requested.set()
        for number in both:  # a second signal ends the process, by the default handler
            loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_DFL)

    for number in both:
        loop.add_signal_handler(number, stop)


def _say(text: str) -> None:
    typer.echo(text, err=True)
