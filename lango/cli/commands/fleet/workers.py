"""`lango workers`: the processes that run turns."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from lango.cli.opened import OpenStore, with_store
from lango.cli.options import Config, Json, Schema, Url
from lango.cli.output.operations import WORKER_COLUMNS, worker_row
from lango.cli.output.tables import print_json, print_table

if TYPE_CHECKING:
    from lango.core.fleet import RegisteredWorker


def workers(
    url: Url = None,
    schema: Schema = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """List the workers: their apps and versions, heartbeats and running turns, of all tenants."""

    async def read(opened: OpenStore) -> list[RegisteredWorker]:
        from lango.store.insight.workers import read_workers

        return await read_workers(opened.store.database)

    registered = with_store((url, schema, config), None, read)
    if as_json:
        print_json({"workers": registered})
    elif registered:
        print_table(WORKER_COLUMNS, [worker_row(worker) for worker in registered])
        if any(worker.state == "silent" for worker in registered):
            typer.echo("Other workers resume the turns of a silent worker.")
    else:
        typer.echo("No worker is registered. `lango worker` and `lango serve` start one.")
