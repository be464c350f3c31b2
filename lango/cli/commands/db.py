"""`lango db`: migrates and checks the store's schema, and imports an ADK database.

Commands import their dependencies when they run, so that `lango --help` is quick.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from lango.cli.opened import OpenStore, with_store
from lango.cli.options import Config, Schema, Url, store_flags

T = TypeVar("T")

app = typer.Typer(
    no_args_is_help=True, help="Upgrade and check the database; import an ADK database."
)


@app.command()
def upgrade(url: Url = None, schema: Schema = None, config: Config = None) -> None:
    """Create or upgrade lango's tables. Safe at every deploy, also concurrently."""
    from lango.store.schema import migrate

    store = _store(url, schema, config)
    revision = _run(store, lambda: migrate.upgrade(*store), may_create=True)
    typer.echo(f"The database is at schema {revision}.")


@app.command()
def check(url: Url = None, schema: Schema = None, config: Config = None) -> None:
    """Exit with 1 unless the database has tables that this version works with."""
    from lango.store.schema import migrate

    store = _store(url, schema, config)
    revision = _run(store, lambda: migrate.check(*store))
    typer.echo(f"The database is at schema {revision}, which this version of lango works with.")


@app.command()
def hold(url: Url = None, schema: Schema = None, config: Config = None) -> None:
    """Let no turn begin, as after a restore; `lango db release` ends it."""

    async def held(opened: OpenStore) -> None:
        from lango.store.hold import hold_database

        await hold_database(opened.store.database)

    with_store((url, schema, config), None, held)
    typer.echo("The database is held: turns are accepted, and none begins.")


@app.command()
def release(url: Url = None, schema: Schema = None, config: Config = None) -> None:
    """Let turns run again in a database that is held: one from a dump is, at first."""

    async def released(opened: OpenStore) -> bool:
        from lango.store.hold import release_database

        return await release_database(opened.store.database)

    if with_store((url, schema, config), None, released):
        typer.echo("The database is released: workers run its turns.")
    else:
        typer.echo("The database was not held.")


@app.command()
def current(url: Url = None, schema: Schema = None, config: Config = None) -> None:
    """Show the schema revision of the database."""
    from lango.store.schema import migrate

    store = _store(url, schema, config)
    revision = _run(store, lambda: migrate.current(*store))
    typer.echo(revision or "none: the database has no lango tables yet")


@app.command("import-adk")
def import_adk(
    source: Annotated[
        str, typer.Argument(help="ADK's database: its URL, or the path of a SQLite file.")
    ],
    url: Url = None,
    schema: Schema = None,
    tenant: Annotated[str, typer.Option(help="The tenant of the imported sessions.")] = "",
    config: Config = None,
) -> None:
    """Copy the sessions of an ADK database, then compare the two. Safe to run again."""
    from lango.cli.output.import_report import import_with_progress, show_report

    store = _store(url, schema, config)
    report = _run(store, lambda: import_with_progress(source, *store, tenant), may_create=True)
    show_report(report)
    if not report.ok:
        raise typer.Exit(1)


Store = tuple[str, str | None]


def _store(url: str | None, schema: str | None, config: Path | None) -> Store:
    """The store's URL and schema: from the options, else from the settings."""
    from lango.config.load import load

    store = load(config, store_flags(url, schema)).settings.store
    return store.full_url, store.db_schema


def _run(
    store: Store, work: Callable[[], Coroutine[Any, Any, T]], *, may_create: bool = False
) -> T:
    """Run `work`; database errors become readable messages."""
    import asyncio

    from lango.store.db.connection_errors import WRONG_FOLDER, in_words, require_file

    url, _ = store
    with in_words(url):
        require_file(url, may_create=may_create, advice=WRONG_FOLDER)
        return asyncio.run(work())
