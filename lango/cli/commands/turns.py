"""`lango turns`: list, show, cancel and retry turns, and deliver results that they wait for."""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from lango.cli.completing import AnyUser, AppName
from lango.cli.opened import OpenStore, with_store, with_turns
from lango.cli.options import Config, Json, Schema, Tenant, Url, command_of
from lango.cli.output.moments import Since, Until, age, span
from lango.cli.output.tables import Column, print_json, print_page
from lango.core.causes import Cause, Causes
from lango.core.times import moment
from lango.core.turns.states import TurnState

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator

    from lango.cli.options import StoreOptions
    from lango.insight.timeline import Timeline
    from lango.store.sessions.listing import Page
    from lango.store.turns.listing import ListedTurn
    from lango.store.turns.rows import Turn
    from lango.turns.service import Turns

app = typer.Typer(no_args_is_help=True, help="List, show, cancel and retry turns; deliver results.")

_COLUMNS: Final = (
    Column("turn"),
    Column("accepted"),
    Column("state"),
    Column("app", is_text=True, is_shared=True),
    Column("user", is_text=True, is_shared=True),
    Column("took", is_number=True, is_spare=True),
    Column("tokens", is_number=True, is_spare=True),
    Column("message", is_text=True),
)

TurnId = Annotated[str, typer.Argument(metavar="TURN", help="The id of the turn, `turn_…`.")]


@app.command("list")
def list_turns(
    session: Annotated[
        str | None, typer.Option("--session", "-s", help="Filter by session.")
    ] = None,
    app: AppName = None,
    user: AnyUser = None,
    status: Annotated[TurnState | None, typer.Option(help="Filter by state.")] = None,
    since: Since = None,
    until: Until = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="Turns per page.")] = 25,
    cursor: Annotated[str | None, typer.Option(help="`next` of the previous page.")] = None,
    tenant: Tenant = None,
    url: Url = None,
    schema: Schema = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """List turns, the newest first."""
    from lango.store.turns.listing import TurnFilter
    from lango.store.turns.listing import list_turns as listed

    async def read(opened: OpenStore) -> Page[ListedTurn]:
        pk = None if session is None else await _session_pk(opened, session, app, user)
        turn_filter = TurnFilter(pk, app, user, status, since, until)
        database = opened.store.database
        return await listed(database, opened.tenant, turn_filter, cursor=cursor, limit=limit)

    page = with_store((url, schema, config), tenant, read)
    if as_json:
        from lango.server.routes.schemas import TurnInfo

        infos = [
            TurnInfo.of(listed_turn.turn, listed_turn.session).model_dump(mode="json")
            for listed_turn in page.items
        ]
        print_json({"turns": infos, "next": page.next_cursor})
    elif page.items:
        _show_list(page)
    else:
        typer.echo("There are no such turns.")


@app.command()
def show(
    turn: TurnId,
    tenant: Tenant = None,
    url: Url = None,
    schema: Schema = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Show a turn on a time axis: model calls, tools, retries, waits, and why it failed."""

    async def read(opened: OpenStore) -> tuple[Turn, Timeline, Causes]:
        from lango.insight.timeline import read_timeline
        from lango.store.turns.submit import SqlTurnStore

        database = opened.store.database
        store = SqlTurnStore(database)
        with _known(turn, opened.store_options):
            stored_turn = await store.get(opened.tenant, turn)
        timeline = await read_timeline(database, stored_turn)
        related = [await store.get(opened.tenant, turn_id) for turn_id in timeline.turns]
        return (
            stored_turn,
            timeline,
            {key: Cause(**c) for t in related for key, c in t.causes.items()},
        )

    stored_turn, timeline, causes = with_store((url, schema, config), tenant, read)
    if as_json:
        print_json({**asdict(timeline), "causes": causes})
        return
    from lango.cli.output.timeline import drawn

    for line in drawn(stored_turn, timeline, causes):
        typer.echo(line)


@app.command()
def cancel(
    turn: TurnId,
    tenant: Tenant = None,
    url: Url = None,
    schema: Schema = None,
    config: Config = None,
) -> None:
    """Cancel a turn that is queued or running; a finished one does not change."""
    with _known(turn, (url, schema, config)):
        stored_turn = _with_turns((url, schema, config), tenant, lambda turns: turns.cancel(turn))
    if stored_turn.state == "running":
        typer.echo(f"Turn {stored_turn.id} runs, and was asked to stop.")
    elif stored_turn.state == "cancelled":
        typer.echo(f"Turn {stored_turn.id} is cancelled.")
    else:
        typer.echo(f"Turn {stored_turn.id} had ended before: {stored_turn.state}.")


@app.command()
def retry(
    turn: TurnId,
    tenant: Tenant = None,
    url: Url = None,
    schema: Schema = None,
    config: Config = None,
) -> None:
    """Submit the message of a failed or cancelled turn again, as a new turn."""
    with _known(turn, (url, schema, config)):
        new = _with_turns((url, schema, config), tenant, lambda turns: turns.retry(turn))
    _print_accepted(new)


@app.command()
def deliver(
    turn: TurnId,
    call: Annotated[str, typer.Option(help="The id of the call, from the turn's `waits_for`.")],
    result: Annotated[str, typer.Option(help="The result, as JSON.")],
    tenant: Tenant = None,
    url: Url = None,
    schema: Schema = None,
    config: Config = None,
) -> None:
    """Deliver the result of a long-running tool call, as a new turn (idempotent)."""
    payload = _parsed(result)
    with _known(turn, (url, schema, config)):
        new = _with_turns(
            (url, schema, config), tenant, lambda turns: turns.deliver(turn, call, payload)
        )
    _print_accepted(new)


def _parsed(result: str) -> Any:
    try:
        return json.loads(result)
    except ValueError as error:
        raise typer.BadParameter(f"--result must be JSON: {error}") from error


def _print_accepted(new: Turn) -> None:
    typer.echo(new.id)
    typer.echo(f"It is {new.state}: a worker that serves {new.session.app_name} runs it.", err=True)


def _with_turns(
    store_options: StoreOptions, tenant: str | None, work: Callable[[Turns], Awaitable[Turn]]
) -> Turn:
    return with_store(store_options, tenant, lambda opened: with_turns(opened, work))


@contextmanager
def _known(turn: str, store_options: StoreOptions) -> Generator[None]:
    """Add a hint to TurnNotFoundError; check the turn's id."""
    from lango.core.ids import check_id
    from lango.errors import TurnNotFoundError

    check_id("turn id", turn)
    try:
        yield
    except TurnNotFoundError as error:
        listing = command_of(store_options, "turns", "list")
        raise TurnNotFoundError(
            f"Turn {turn} not found. Run `{listing}`, or pass --tenant."
        ) from error


async def _session_pk(opened: OpenStore, session: str, app: str | None, user: str | None) -> int:
    from lango.cli.commands.sessions import find

    summary = await find(opened, session, app, user)
    return (await opened.store.locate(summary.key)).pk or 0


def _show_list(page: Page[ListedTurn]) -> None:
    turns = [listed_turn.turn for listed_turn in page.items]
    rows = [
        (
            turn.id,
            age(moment(turn.created)),
            turn.state,
            turn.session.app_name,
            turn.session.user_id,
            _took(turn),
            _tokens(turn),
            str(turn.input.get("text", "(an answer)")),
        )
        for turn in turns
    ]
    print_page(_COLUMNS, rows, page.next_cursor)


def _took(turn: Turn) -> str:
    if turn.started is None or turn.ended is None:
        return ""
    return span(max(turn.ended - turn.started, 0.0))


def _tokens(turn: Turn) -> str:
    usage = turn.usage or {}
    return f"{usage.get('input', 0) + usage.get('output', 0):,}" if usage else ""
