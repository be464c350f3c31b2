"""`lango top`: what runs, waits and has failed, live."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Final

import typer

from lango.cli.opened import OpenStore, with_store
from lango.cli.options import Config, Json, Schema, Url
from lango.cli.output.tables import print_json

if TYPE_CHECKING:
    from rich.live import Live

    from lango.cli.output.operations import Screenful
    from lango.insight.operations import OperationsPicture

_ROWS: Final = 50
"""Running and failed turns that are read; the terminal shows as many as it has lines for."""


def top(
    once: Annotated[bool, typer.Option("--once", help="Print one picture and exit.")] = False,
    every: Annotated[float, typer.Option(min=0.2, help="Seconds between two pictures.")] = 2.0,
    tenant: Annotated[
        str | None, typer.Option(help="Filter by tenant (default: all).", show_default=False)
    ] = None,
    url: Url = None,
    schema: Schema = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Show queues, running turns, workers and recent failures; refreshes until Ctrl-C."""
    is_live = not once and not as_json and sys.stdout.isatty()

    async def look(opened: OpenStore) -> OperationsPicture | None:
        from lango.insight.operations import read_operations

        if not is_live:
            return await read_operations(opened.store.database, tenant, limit=_ROWS)
        await _watch(opened, tenant, every)
        return None

    try:
        picture = with_store((url, schema, config), tenant, look)
    except KeyboardInterrupt:
        return
    if picture is None:
        return
    if as_json:
        print_json(picture)
        return
    from lango.cli.output.operations import print_picture

    print_picture(picture)


async def _watch(opened: OpenStore, tenant: str | None, every: float) -> None:
    """Draw a picture every few seconds, until it is cancelled."""
    import asyncio

    from rich.console import Console
    from rich.live import Live

    from lango.cli.output.operations import Screenful

    screenful = Screenful(every)
    with Live(screenful, console=Console(highlight=False), screen=True, auto_refresh=False) as live:
        while True:
            await _draw(opened, tenant, screenful, live)
            await asyncio.sleep(every)


async def _draw(opened: OpenStore, tenant: str | None, screenful: Screenful, live: Live) -> None:
    """Replace the picture; if the database does not answer, keep the last one and say so."""
    from lango.errors import StoreError
    from lango.insight.operations import read_operations

    try:
        picture = await read_operations(opened.store.database, tenant, limit=_ROWS)
    except StoreError as error:
        screenful.problem = str(error)
    else:
        screenful.picture, screenful.problem = picture, ""
    live.update(screenful, refresh=True)
