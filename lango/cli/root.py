"""The root command and its groups."""

from __future__ import annotations

from typing import Annotated

import typer

from lango.cli.commands import (
    adk,
    chat,
    config,
    context,
    db,
    dev,
    doctor,
    init,
    keys,
    run,
    serve,
    sessions,
    turns,
    usage,
    users,
    worker,
)
from lango.cli.commands.fleet import top, workers
from lango.cli.output import logs

DISTRIBUTION = "lango-adk"

app = typer.Typer(
    no_args_is_help=True,
    # `main` catches errors that a user can act on; others are bugs, shown with a plain traceback.
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(init.init)
app.command()(chat.chat)
app.command()(run.run)
app.command()(serve.serve)
app.command()(dev.dev)
app.command()(worker.worker)
app.command()(workers.workers)
app.command()(top.top)
app.command()(context.context)
app.command()(usage.usage)
app.command()(doctor.doctor)
app.add_typer(sessions.app, name="sessions")
app.add_typer(turns.app, name="turns")
app.add_typer(users.app, name="users")
app.add_typer(db.app, name="db")
app.add_typer(keys.app, name="keys")
app.add_typer(adk.app, name="adk")
app.add_typer(config.app, name="config")


def _show_version(is_requested: bool) -> None:
    if not is_requested:
        return
    from importlib.metadata import PackageNotFoundError, version

    try:
        installed = version(DISTRIBUTION)
    except PackageNotFoundError:
        installed = "(not installed)"
    typer.echo(f"lango {installed}")
    raise typer.Exit


@app.callback()
def root(
    _version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
    verbose: Annotated[bool, logs.VERBOSE] = False,
) -> None:
    """Run Google ADK agents on your own SQL database."""
    if verbose:
        logs.log_all()
    else:
        logs.log_nothing()
