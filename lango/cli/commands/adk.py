"""`lango adk`: makes ADK's own tools use the store."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(no_args_is_help=True)


@app.callback()
def group() -> None:
    """Let `adk web` and `adk api_server` use the store."""


@app.command()
def services(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="The folder you give to `adk web`.")
    ],
    print_only: Annotated[
        bool, typer.Option("--print", help="Only show what the file would say.")
    ] = False,
) -> None:
    """Write DIR/services.yaml, which teaches ADK the URIs lango+postgresql:// and lango+sqlite://."""
    from lango.adk.apps.services import services_yaml, write_services_yaml

    if print_only:
        typer.echo(services_yaml(), nl=False)
        return
    path = write_services_yaml(folder)
    store = "lango+sqlite:///lango.db"
    typer.echo(f"{path} is ready. For example:")
    typer.echo(f"  adk web --session_service_uri={store} --artifact_service_uri={store} {folder}")
