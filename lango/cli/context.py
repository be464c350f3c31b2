"""`lango context`: what a model call saw, drawn as text."""

from __future__ import annotations

import asyncio
import json
from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lango.cli.options import DEFAULT_USER, Config, Schema, Url, UserName, store_flags

if TYPE_CHECKING:
    from lango.config.settings import Settings
    from lango.insight.context import SessionContext
    from lango.store.entries import SessionKey
    from lango.store.sessions import SqlSessionStore


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
    from lango.config.load import load
    from lango.store.connecting import in_words, require_file

    settings = load(config, store_flags(url, schema)).settings
    where = settings.store.url.get_secret_value()
    apps = [app] if app else list(settings.apps)
    with in_words(where):
        require_file(where)
        found = asyncio.run(_read(settings, apps, user, session, call))
    if as_json:
        typer.echo(json.dumps(asdict(found), default=_readable, indent=2, ensure_ascii=False))
        return
    from lango.cli.context_drawing import drawn

    for line in drawn(found):
        typer.echo(line)


def _readable(value: Any) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)


async def _read(
    settings: Settings, apps: list[str], user: str, session: str, call: str | None
) -> SessionContext:
    from lango.insight.context_reader import ContextReader
    from lango.store.sessions import SqlSessionStore

    store = settings.store
    async with SqlSessionStore(store.url.get_secret_value(), schema=store.db_schema) as opened:
        key = await _found(opened, store.tenant, apps, user, session)
        budget = settings.history.token_budget
        reader = ContextReader(opened, key, text_room=None, token_budget=budget)
        return await (reader.newest() if call is None else reader.call(call))


async def _found(
    store: SqlSessionStore, tenant: str, apps: list[str], user: str, session: str
) -> SessionKey:
    """The session of that id, in the one app that has it."""
    from lango.core.ids import check_id
    from lango.errors import ConfigError, SessionNotFoundError
    from lango.store.entries import SessionKey

    check_id("session id", session)
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
