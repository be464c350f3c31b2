"""`lango worker`: runs turns that any process has submitted to the database."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Annotated, Final

import typer

from lango.cli.options import Config, Url
from lango.cli.output.logs import LogFormatOption, log_as, log_warnings, say
from lango.cli.preflight import checked_settings, measure, require_server
from lango.server.listening import listen, require_free

if TYPE_CHECKING:
    import asyncio

    from lango.app import Application
    from lango.turns.worker import TurnWorker

Apps = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="APPS",
        help="Apps of the settings, or package.module:attribute (default: all of the settings).",
        show_default=False,
    ),
]
Concurrency = Annotated[
    int | None,
    typer.Option(min=1, help="Concurrent turns (default: `worker.concurrency` of the settings)."),
]
ProbePort = Annotated[
    int | None,
    typer.Option(
        min=0,
        max=65535,
        help="Answer /healthz, /readyz and, with `metrics.enabled`, /metrics on this port of "
        "`server.host`; 0 for any free one.",
    ),
]
_PROBE_OPTIONS: Final = ("--probe-port", "the setting server.host")


def worker(
    apps: Apps = None,
    concurrency: Concurrency = None,
    probe_port: ProbePort = None,
    log_format: LogFormatOption = None,
    url: Url = None,
    config: Config = None,
) -> None:
    """Run turns. The first Ctrl-C or SIGTERM drains; the second exits immediately."""
    log_warnings(turns=True)
    log_as(log_format)
    loaded = checked_settings(url, config, apps or [])
    log_as(log_format, loaded.settings.log_format)
    measure(loaded.settings)
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
    say("Stopped.")


async def _run(application: Application, worker: TurnWorker) -> None:
    import asyncio

    from lango.adk.apps.preload import warm_up

    stop_requested = asyncio.Event()
    await warm_up()
    _hear_signals(stop_requested)
    starting = asyncio.create_task(worker.start_when_released())
    stopping = asyncio.create_task(stop_requested.wait())
    await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
    if not starting.done():  # the database is held
        starting.cancel()
        return
    await starting
    say(_started(application, worker))
    await stopping
    say(_stopping(application, worker))
    await worker.stop(application.settings.worker.drain)


async def _run_with_probes(application: Application, worker: TurnWorker, port: int) -> None:
    from lango.server.metrics import metrics_beside_probes
    from lango.server.process import serve
    from lango.server.routes.probes import create_probes

    app = create_probes(application)
    with listen(application.settings.server.host, port, _PROBE_OPTIONS) as listening:
        async with metrics_beside_probes(app) as measured:
            subject = "Probes and metrics" if measured else "Probes"
            answers = f"{subject} are answered on port {listening.getsockname()[1]}."
            await serve(
                app,
                listening,
                worker=worker,
                drain=application.settings.worker.drain,
                on_ready=lambda: say(f"{_started(application, worker)} {answers}"),
                on_stop=lambda: say(_stopping(application, worker)),
            )


def _started(application: Application, worker: TurnWorker) -> str:
    from lango.store.db.connection_errors import database_address

    return (
        f"Running turns of {', '.join(worker.apps)}, up to {worker.options.concurrency} at a "
        f"time, from {database_address(application.store.database.url)}."
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
    signals = (signal.SIGTERM, signal.SIGINT)

    def stop() -> None:
        stop_requested.set()
        for number in signals:  # a second signal ends the process, by the default handler
            loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_DFL)

    for number in signals:
        loop.add_signal_handler(number, stop)
