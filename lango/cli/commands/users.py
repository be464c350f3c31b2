"""`lango users`: show and delete the memory of a user, or delete all data of one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from lango.cli.completing import AppName, app_names
from lango.cli.opened import OpenStore, with_store
from lango.cli.options import Config, Json, Schema, Tenant, Url
from lango.cli.output.moments import age
from lango.cli.output.printable import one_line
from lango.cli.output.tables import Column, print_json, print_table

if TYPE_CHECKING:
    from lango.store.memory.store import FoundMemory
    from lango.store.sessions.entries import SessionKey
    from lango.store.users import DeletedData

app = typer.Typer(no_args_is_help=True, help="Show and delete the data of a user.")

_COLUMNS: Final = (
    Column("entry"),
    Column("time"),
    Column("author", is_text=True, is_spare=True),
    Column("session", is_text=True, is_spare=True),
    Column("text", is_text=True),
)
_TEXT: Final = 500

UserId = Annotated[str, typer.Argument(metavar="USER", help="The id of the user.")]
OneApp = Annotated[
    str | None,
    typer.Option(
        "--app",
        help="The app. Required unless the settings have exactly one app.",
        autocompletion=app_names,
    ),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Delete without confirmation.")]


@app.command()
def memory(
    user: UserId,
    query: Annotated[str, typer.Option("--query", "-q", help="Words to search for.")] = "",
    limit: Annotated[int, typer.Option(min=1, max=1000, help="Entries to show.")] = 25,
    app: OneApp = None,
    tenant: Tenant = None,
    url: Url = None,
    schema: Schema = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """List a user's memory, the newest first; with --query the matches, the best first."""
    from lango.store.memory.store import SqlMemoryStore

    async def read(opened: OpenStore) -> list[FoundMemory]:
        store, owner = SqlMemoryStore(opened.store.database), _owner(opened, app, user)
        if query:
            return await store.search(owner, query, limit)
        return await store.page(owner, limit)

    entries = with_store((url, schema, config), tenant, read)
    if as_json:
        print_json({"entries": [_data(entry) for entry in entries]})
    elif entries:
        print_table(_COLUMNS, [_cells(entry) for entry in entries])
    else:
        typer.echo("There are no such entries.")


@app.command()
def forget(
    user: UserId,
    entries: Annotated[
        list[int] | None,
        typer.Argument(metavar="ENTRY…", help="Numbers from `lango users memory` (default: all)."),
    ] = None,
    yes: Yes = False,
    app: OneApp = None,
    tenant: Tenant = None,
    url: Url = None,
    schema: Schema = None,
    config: Config = None,
) -> None:
    """Delete entries of a user's memory, or all of it. Sessions keep their messages."""
    from lango.store.memory.store import SqlMemoryStore

    async def remove(opened: OpenStore) -> int:
        store, owner = SqlMemoryStore(opened.store.database), _owner(opened, app, user)
        if not entries:
            return await store.delete_all(owner)
        names = {"app_name": owner.app_name, "user_id": user}
        return sum([await store.delete(owner.tenant, pk, **names) for pk in entries])

    if not yes:
        subject = f"{len(entries)} entries" if entries else "all entries"
        typer.confirm(f"Delete {subject} of the memory of {one_line(user, 80)}?", abort=True)
    count = with_store((url, schema, config), tenant, remove)
    typer.echo(f"Deleted entries: {count:,}.")


@app.command()
def delete(
    user: UserId,
    yes: Yes = False,
    app: AppName = None,
    tenant: Tenant = None,
    url: Url = None,
    schema: Schema = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Delete all data of a user, with memory and credentials, and stop the user's turns."""
    from dataclasses import asdict

    async def remove(opened: OpenStore) -> DeletedData:
        return await opened.store.delete_user(opened.tenant, user, app)

    if not yes:
        scope = f"in {one_line(app, 80)}" if app else "in all apps"
        data = f"all data, memory and credentials of {one_line(user, 80)}"
        typer.confirm(f"Delete {data} {scope}?", abort=True)
    deleted = with_store((url, schema, config), tenant, remove)
    if as_json:
        print_json(asdict(deleted))
        return
    counts = {
        "sessions": deleted.sessions,
        "entries of memory": deleted.memories,
        "artifacts of the user": deleted.artifacts,
        "keys of the user's state": deleted.states,
        "records of model calls": deleted.model_calls,
        "credentials for tools": deleted.credentials,
    }
    text = ", ".join(f"{label}: {count:,}" for label, count in counts.items() if count)
    typer.echo(f"Deleted {text}." if text else "There is no data of this user.")


def _owner(opened: OpenStore, app: str | None, user: str) -> SessionKey:
    """The user in an app; ConfigError if no app is named and the settings have not just one."""
    from lango.core.ids import check_id
    from lango.errors import ConfigError
    from lango.store.sessions.entries import SessionKey

    apps = list(opened.settings.apps)
    if app is None and len(apps) != 1:
        names = f": {', '.join(apps)}" if apps else ""
        raise ConfigError(f"Pass --app: each app has its own memory of a user{names}.")
    return SessionKey(
        opened.tenant, check_id("app name", app or apps[0]), check_id("user id", user), ""
    )


def _data(entry: FoundMemory) -> dict[str, Any]:
    """An entry in the form of the HTTP API."""
    from lango.server.routes.schemas import MemoryItem

    return MemoryItem.of(entry).model_dump(mode="json")


def _cells(entry: FoundMemory) -> list[str]:
    from lango.store.sessions.entries import readable_time

    return [
        str(entry.pk),
        age(readable_time(entry.timestamp)),
        entry.author or entry.role,
        entry.session_id or "-",
        one_line(entry.text, _TEXT),
    ]
