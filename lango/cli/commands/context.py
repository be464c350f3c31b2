"""`lango context`: what a model call saw, drawn as text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from lango.cli.opened import OpenStore, with_store
from lango.cli.options import DEFAULT_USER, Config, Schema, Url, UserName
from lango.cli.output.tables import print_json

if TYPE_CHECKING:
    from lango.insight.context import SessionContext
    from lango.store.sessions.entries import SessionKey
    from lango.store.sessions.store import SqlSessionStore


def context(
    session: Annotated[
        str, typer.Argument(metavar="SESSION", help="Its id, or `ses_…` of the server.")
    ],
    call: Annotated[
        str | None, typer.Option(help="A model call by its id, `mc_…`; else the newest.")
    ] = None,
    user: UserName = DEFAULT_USER,
    app: Annotated[
        str | None, typer.Option(help="The app, where the settings have several or none.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="For scripts, with whole texts.")] = False,
    url: Url = None,
    schema: Schema = None,
    config: Config = None,
) -> None:
    """Show what a model call saw, what was left out of it, and why."""

    async def read(opened: OpenStore) -> SessionContext:
        from lango.insight.context_reader import ContextReader

        settings = opened.settings
        key = await _session_key(opened, [app] if app else list(settings.apps), user, session)
        budget = settings.history.token_budget
        reader = ContextReader(opened.store, key, text_room=None, token_budget=budget)
        return await (reader.newest() if call is None else reader.call(call))

    session_context = with_store((url, schema, config), None, read)
    if as_json:
        print_json(session_context)
        return
    from lango.cli.output.context import drawn

    for line in drawn(session_context):
        typer.echo(line)


async def _session_key(opened: OpenStore, apps: list[str], user: str, session: str) -> SessionKey:
    """The session of that id, in the one app that has it."""
    from lango.core.ids import check_id
    from lango.errors import ConfigError, SessionNotFoundError
    from lango.store.sessions.entries import SessionKey

    check_id("session id", session)
    store, tenant = opened.store, opened.tenant
    try:
        return (await store.find(tenant, user, session)).key
    except SessionNotFoundError:
        keys = [SessionKey(tenant, app, user, session).checked() for app in apps]
    if not keys:
        raise ConfigError("The settings name no app: say --app, or the id that begins with ses_.")
    there = [key for key in keys if await _exists(store, key)]
    if len(there) == 1:
        return there[0]
    if there:
        names = ", ".join(key.app_name for key in there)
        raise ConfigError(f"Several apps have a session {session}: say --app, one of {names}.")
    raise SessionNotFoundError(
        f"{user} has no session {session} in {', '.join(apps)}; --user and --app say whose and "
        "where to look."
    )


async def _exists(store: SqlSessionStore, key: SessionKey) -> bool:
    from lango.errors import SessionNotFoundError

    try:
        await store.summary(key)
    except SessionNotFoundError:
        return False
    return True
