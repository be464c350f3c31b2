"""`lango adk`: makes ADK's own tools use the store."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lango.cli.options import Config

app = typer.Typer(no_args_is_help=True)


@app.callback()
def group() -> None:
    """Let `adk web` and `adk api_server` use the store."""


@app.command()
def services(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="The folder that you pass to `adk web`.")
    ],
    print_only: Annotated[
        bool, typer.Option("--print", help="Print the file and do not write it.")
    ] = False,
    config: Config = None,
) -> None:
    """Write DIR/services.yaml: ADK then accepts lango+postgresql:// and lango+sqlite:// URIs."""
    from lango.adk.apps.services import services_yaml, write_services_yaml
    from lango.config.load import load
    from lango.config.secrets import masked_url

    if print_only:
        typer.echo(services_yaml(), nl=False)
        return
    path = write_services_yaml(folder)
    store = f"lango+{masked_url(load(config).settings.store.url.get_secret_value())}"
    typer.echo(f"{path} is ready. For example:")
    uris = " ".join(f"--{kind}_service_uri={store}" for kind in ("session", "artifact", "memory"))
    typer.echo(f"  adk web {uris} {folder}")
