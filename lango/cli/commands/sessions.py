"""`lango sessions`: list, show, export, import and delete sessions."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from lango.cli.completing import AnyUser, AppName
from lango.cli.opened import OpenStore, with_store
from lango.cli.options import Config, Json, Schema, Tenant, Url, command_of
from lango.cli.output.moments import Since, Until, age, exact
from lango.cli.output.printable import one_line, printable
from lango.cli.output.tables import Column, print_json, print_page
from lango.core.messages.code_parts import stored_code_parts
from lango.core.times import moment
from lango.core.turns.states import TurnState

if TYPE_CHECKING:
    from lango.store.sessions.entries import StoredMessage
    from lango.store.sessions.listing import Page, SessionSummary

app = typer.Typer(no_args_is_help=True, help="List, show, export, import and delete sessions.")

_COLUMNS: Final = (
    Column("session"),
    Column("active"),
    Column("status"),
    Column("app", is_text=True, is_shared=True),
    Column("user", is_text=True, is_shared=True),
    Column("messages", is_number=True, is_spare=True),
    Column("tokens", is_number=True, is_spare=True),
    Column("title", is_text=True),
)
_TEXT: Final = 2_000
STATUS_HELP: Final = "Filter by state: running while a turn runs, else that of the newest turn."

SessionId = Annotated[
    str, typer.Argument(metavar="SESSION", help="`ses_…`, or the session's own id if it is unique.")
]


@app.command("list")
def list_sessions(
    app: AppName = None,
    user: AnyUser = None,
    status: Annotated[TurnState | None, typer.Option(help=STATUS_HELP)] = None,
    since: Since = None,
    until: Until = None,
    title: Annotated[str, typer.Option("--title", "-q", help="Filter by title.")] = "",
    limit: Annotated[int, typer.Option(min=1, max=1000, help="Sessions per page.")] = 25,
    cursor: Annotated[str | None, typer.Option(help="`next` of the previous page.")] = None,
    tenant: Tenant = None,
    url: Url = None,
    schema: Schema = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """List sessions, the last active first."""
    from lango.store.sessions.listing import SessionFilter

    session_filter = SessionFilter(title, status, since, until)

    async def read(opened: OpenStore) -> Page[SessionSummary]:
        names = [app] if app is not None else await opened.store.app_names(opened.tenant)
        return await opened.store.page(
            opened.tenant, names, user, wanted=session_filter, cursor=cursor, limit=limit
        )

    page = with_store((url, schema, config), tenant, read)
    if as_json:
        print_json(
            {"sessions": [_data(summary) for summary in page.items], "next": page.next_cursor}
        )
    elif page.items:
        _show_list(page)
    else:
        typer.echo("There are no such sessions.")


@app.command()
def show(
    session: SessionId,
    messages: Annotated[
        int, typer.Option("--messages", "-n", min=0, max=1000, help="Newest messages to show.")
    ] = 10,
    app: AppName = None,
    user: AnyUser = None,
    tenant: Tenant = None,
    url: Url = None,
    schema: Schema = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Show a session and its newest messages."""

    async def read(opened: OpenStore) -> tuple[SessionSummary, list[StoredMessage]]:
        summary = await find(opened, session, app, user)
        rows = await opened.store.messages(summary.key, limit=messages) if messages else []
        return summary, rows

    summary, rows = with_store((url, schema, config), tenant, read)
    if as_json:
        print_json({**_data(summary), "newest": [_message(row) for row in rows]})
        return
    for line in _described(summary):
        typer.echo(line)
    for row in rows:
        typer.echo("")
        typer.echo(_heading(row))
        typer.echo(printable(_shown_text(row)))


@app.command()
def export(
    session: SessionId,
    file: Annotated[
        Path | None,
        typer.Argument(help="Output file (default: SESSION.jsonl); `-` is standard output."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file.")] = False,
    app: AppName = None,
    user: AnyUser = None,
    tenant: Tenant = None,
    url: Url = None,
    schema: Schema = None,
    config: Config = None,
) -> None:
    """Export a session as JSON Lines: messages, state, artifacts and memory."""
    from lango.cli.output.session_files import atomic_file, export_to
    from lango.store.transfer.export import open_export

    async def write(opened: OpenStore) -> tuple[str, int]:
        summary = await find(opened, session, app, user)
        export = await open_export(opened.store.database, summary.key)
        if file is not None and str(file) == "-":
            return "", await export_to(export, sys.stdout.buffer)
        path = file or Path(f"{summary.public_id}.jsonl")
        with atomic_file(path, force=force) as output:
            return str(path), await export_to(export, output)

    path, size = with_store((url, schema, config), tenant, write)
    if path:
        typer.echo(f"{path}: {size:,} bytes.")


@app.command("import")
def import_session(
    file: Annotated[Path, typer.Argument(help="A file of `lango sessions export`.")],
    session: Annotated[
        str | None, typer.Option(help="New session id (default: the exported one).")
    ] = None,
    app: Annotated[str | None, typer.Option(help="New app (default: the exported one).")] = None,
    user: Annotated[
        str | None, typer.Option("--user", "-u", help="New user (default: the exported one).")
    ] = None,
    tenant: Tenant = None,
    url: Url = None,
    schema: Schema = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Import an exported session, from any database: all of it or nothing."""
    from lango.cli.output.session_files import import_from

    store_options = (url, schema, config)
    names = {"app_name": app, "user_id": user, "session_id": session}
    result = with_store(
        store_options, tenant, partial(import_from, path=file, names=names), may_create=True
    )
    if as_json:
        key = result.key
        names = {"id": result.public_id, "app": key.app_name, "user": key.user_id}
        counts = {
            "entries": result.entries,
            "artifacts": result.artifacts,
            "memories": result.memories,
        }
        print_json({**names, "alias": key.session_id, **counts})
        return
    extras = {"artifacts": result.artifacts, "entries of memory": result.memories}
    counts = "".join(f", {count:,} {label}" for label, count in extras.items() if count)
    owner = f"{one_line(result.key.user_id, 80)} in {one_line(result.key.app_name, 80)}"
    typer.echo(f"{result.public_id} of {owner}: {result.entries:,} entries{counts}.")


@app.command()
def delete(
    sessions: Annotated[
        list[str], typer.Argument(metavar="SESSION…", help="`ses_…`, or their own ids if unique.")
    ],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Delete without confirmation.")] = False,
    app: AppName = None,
    user: AnyUser = None,
    tenant: Tenant = None,
    url: Url = None,
    schema: Schema = None,
    config: Config = None,
) -> None:
    """Delete sessions with all their data, and stop their turns."""
    store_options = (url, schema, config)

    async def find_all(opened: OpenStore) -> list[SessionSummary]:
        return [await find(opened, session_id, app, user) for session_id in sessions]

    async def remove(opened: OpenStore) -> None:
        for summary in summaries:
            await opened.store.delete(summary.key, public_id=summary.public_id)

    summaries = with_store(store_options, tenant, find_all)
    for summary in summaries if not yes else ():
        typer.echo(_listed(summary))
    if not yes:
        subject = "this session" if len(summaries) == 1 else f"these {len(summaries)} sessions"
        typer.confirm(f"Delete {subject}?", abort=True)
    with_store(store_options, tenant, remove)
    typer.echo("Deleted." if len(summaries) == 1 else f"Deleted {len(summaries)} sessions.")


async def find(
    opened: OpenStore, session: str, app: str | None, user: str | None
) -> SessionSummary:
    """The session of an id; ConfigError if several have it, SessionNotFoundError if none."""
    from lango.core.ids import check_id
    from lango.errors import ConfigError, SessionNotFoundError
    from lango.store.sessions import listing

    check_id("session id", session)
    query = partial(
        listing.named_sessions, tenant=opened.tenant, name=session, app_name=app, user_id=user
    )
    summaries = await opened.store.database.read(query)
    exact = [summary for summary in summaries if summary.public_id == session]
    if len(exact or summaries) == 1:
        return (exact or summaries)[0]
    if summaries:
        choices = ", ".join(
            f"{summary.public_id} ({summary.app_name}, {summary.user_id})" for summary in summaries
        )
        raise ConfigError(
            f"Several sessions are called {session}: pass --app, --user, or {choices}."
        )
    scope = "".join((f" of {user}" if user else "", f" in {app}" if app else ""))
    raise SessionNotFoundError(
        f"Session {session}{scope} not found. "
        f"Run `{command_of(opened.store_options, 'sessions', 'list')}`, or pass --tenant."
    )


def _data(summary: SessionSummary) -> dict[str, Any]:
    """A session in the form of the HTTP API."""
    from lango.server.routes.schemas import Session

    return Session.of(summary).model_dump(mode="json")


def _show_list(page: Page[SessionSummary]) -> None:
    rows = [
        (
            summary.public_id,
            age(moment(summary.last_activity)),
            summary.status or "",
            summary.app_name,
            summary.user_id,
            f"{summary.message_count:,}",
            f"{summary.total_tokens:,}",
            summary.title,
        )
        for summary in page.items
    ]
    print_page(_COLUMNS, rows, page.next_cursor)


def _listed(summary: SessionSummary) -> str:
    title = f" {one_line(summary.title, 60)!r}" if summary.title else ""
    owner = f"{one_line(summary.user_id, 40)} in {one_line(summary.app_name, 40)}"
    return f"{summary.public_id}{title} of {owner}, {summary.message_count:,} messages"


def _described(summary: SessionSummary) -> list[str]:
    created, active = moment(summary.created), moment(summary.last_activity)
    return [
        summary.public_id,
        f"  title     {one_line(summary.title, 200) or '-'}",
        f"  app       {one_line(summary.app_name, 200)}",
        f"  user      {one_line(summary.user_id, 200)}",
        f"  id        {one_line(summary.id, 256)}",
        f"  status    {summary.status or 'no turn yet'}",
        f"  messages  {summary.message_count:,} ({summary.total_tokens:,} tokens)",
        f"  created   {exact(created)}",
        f"  active    {exact(active)} ({age(active)})",
    ]


def _message(row: StoredMessage) -> dict[str, Any]:
    from lango.server.routes.schemas import SessionMessage

    return SessionMessage.of(row).model_dump(mode="json")


def _heading(row: StoredMessage) -> str:
    author = "" if row.author in ("", row.role) else f" ({one_line(row.author, 60)})"
    created = moment(row.timestamp)
    return f"{row.seq} {row.role}{author}, {created:%Y-%m-%d %H:%M:%S}, {row.tokens:,} tokens"


def _shown_text(row: StoredMessage) -> str:
    """The text and code of a message, or the JSON of its tool calls, cut to _TEXT characters."""
    texts = [row.content, *(part.text for part in stored_code_parts(row.event))]
    text = "\n".join(filter(None, texts)) or row.tool_calls or ""
    return text if len(text) <= _TEXT else f"{text[:_TEXT]}… ({len(text):,} characters)"
