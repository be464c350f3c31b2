"""`lango config`: the current settings, and their JSON Schema."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from lango.cli.options import Config

app = typer.Typer(no_args_is_help=True, help="Show the settings and what they can be.")


@app.command()
def show(
    config: Config = None,
    as_json: Annotated[bool, typer.Option("--json", help="For scripts.")] = False,
) -> None:
    """Show every setting with where it was said. Secrets are masked."""
    from lango.config.load import load

    loaded = load(config)
    values = list(loaded.values())
    if as_json:
        rows = [{"key": key, "value": value, "from": origin} for key, value, origin in values]
        typer.echo(json.dumps(rows, indent=2, ensure_ascii=False))
        return
    _table(values)


@app.command()
def schema() -> None:
    """Print the JSON Schema of lango.yaml, with which editors complete and check it."""
    from lango.config.settings import published_schema

    typer.echo(published_schema(), nl=False)


def _table(values: list[tuple[str, Any, str]]) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for heading in ("key", "value", "from"):
        table.add_column(heading, overflow="fold")
    for key, value, origin in values:
        style = "dim" if origin == "default" else ""
        shown = json.dumps(value, ensure_ascii=False)
        table.add_row(escape(key), escape(shown), escape(origin), style=style)
    Console(highlight=False).print(table)
