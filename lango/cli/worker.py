"""`lango worker`: runs turns that were handed in to the database, wherever that was."""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING, Annotated

import typer

from lango.cli.logs import log_warnings
from lango.cli.options import Config, Url, store_flags
from lango.turns import event_loop

if TYPE_CHECKING:
    from lango.app import Application

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


def worker(
    apps: Apps = None, concurrency: Concurrency = None, url: Url = None, config: Config = None
) -> None:
    """Run turns until it is told to stop. A first Ctrl-C or SIGTERM lets them end, a second not."""
    from lango.app import Application
    from lango.config.load import load

    log_warnings(turns=True)
    application = Application(load(config, store_flags(url)))
    event_loop.run(_work(application, apps or [], concurrency))


async def _work(application: Application, names: list[str], concurrency: int | None) -> None:
    from lango.adk.warm import warm_up
    from lango.store.connecting import place

    told = asyncio.Event()
    async with application:
        worker = await application.worker(names, concurrency=concurrency)
        await warm_up()
        _hear_signals(told)
        await worker.start()
        _say(
            f"Running turns of {', '.join(worker.apps)}, up to {worker.options.concurrency} at a "
            f"time, from {place(application.store.database.url)}."
        )
        await told.wait()
        drain = application.settings.worker.drain
        _say(f"Stopping; turns that still run have {drain:g} s to end: {worker.running}.")
        await worker.stop(drain)
    _say("Stopped.")


def _hear_signals(told: asyncio.Event) -> None:
    loop = asyncio.get_running_loop()
    both = (signal.SIGTERM, signal.SIGINT)

    def stop() -> None:
        told.set()
        for number in both:  # the second one ends the process, as if nobody had listened
            loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_DFL)

    for number in both:
        loop.add_signal_handler(number, stop)


def _say(text: str) -> None:
    typer.echo(text, err=True)
