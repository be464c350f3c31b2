"""`lango config`: the current settings, and their JSON Schema."""

from __future__ import annotations

import json

import typer

from lango.cli.options import Config, Json
from lango.cli.output.tables import print_folded, print_json

app = typer.Typer(no_args_is_help=True, help="Show the settings and their JSON Schema.")


@app.command()
def show(config: Config = None, as_json: Json = False) -> None:
    """Show every setting, its value and its source. Secrets are masked."""
    from lango.config.load import load

    loaded = load(config)
    values = list(loaded.values())
    if as_json:
        print_json([{"key": key, "value": value, "from": origin} for key, value, origin in values])
        return
    rows = (
        ((key, json.dumps(value, ensure_ascii=False), origin), origin != "default")
        for key, value, origin in values
    )
    print_folded(("key", "value", "from"), rows)


@app.command()
def schema() -> None:
    """Print the JSON Schema of lango.yaml, for editors that complete and check the file."""
    from lango.config.settings import published_schema

    typer.echo(published_schema(), nl=False)
