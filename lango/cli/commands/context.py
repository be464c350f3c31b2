"""`lango context`: what a model call saw, drawn as text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from lango.cli.commands.sessions import SessionId, find
from lango.cli.completing import AnyUser, AppName
from lango.cli.opened import OpenStore, with_store
from lango.cli.options import Config, Schema, Tenant, Url
from lango.cli.output.tables import print_json

if TYPE_CHECKING:
    from lango.insight.context import SessionContext


def context(
    session: SessionId,
    call: Annotated[
        str | None, typer.Option(help="The id of a model call, `mc_…` (default: the newest).")
    ] = None,
    app: AppName = None,
    user: AnyUser = None,
    tenant: Tenant = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, with whole texts.")] = False,
    url: Url = None,
    schema: Schema = None,
    config: Config = None,
) -> None:
    """Show the input of a model call, the messages that were left out, and why."""

    async def read(opened: OpenStore) -> SessionContext:
        from lango.insight.context_reader import ContextReader

        settings = opened.settings
        key = (await find(opened, session, app, user)).key
        budget = settings.history.token_budget
        reader = ContextReader(opened.store, key, text_room=None, token_budget=budget)
        return await (reader.newest() if call is None else reader.call(call))

    session_context = with_store((url, schema, config), tenant, read)
    if as_json:
        print_json(session_context)
        return
    from lango.cli.output.context import drawn

    for line in drawn(session_context):
        typer.echo(line)
