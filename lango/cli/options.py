"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Final

import typer

DEFAULT_USER: Final = "user"

Config = Annotated[
    Path | None,
    typer.Option(
        "--config", "-c", help="The settings file; else $LANGO_CONFIG, else ./lango.yaml."
    ),
]
Url = Annotated[
    str | None,
    typer.Option(
        help="The store: postgresql://user@host/database or sqlite:///file.db. "
        "By default what the settings say (LANGO_STORE__URL, lango.yaml).",
        show_default=False,
    ),
]
Schema = Annotated[str | None, typer.Option(help="The PostgreSQL schema that has lango's tables.")]

Target = Annotated[
    str | None,
    typer.Argument(
        metavar="APP",
        help="An app of the settings, or package.module:attribute: an ADK agent, App or Workflow. "
        "Not needed where there is only one app.",
        show_default=False,
    ),
]
SessionName = Annotated[
    str | None,
    typer.Option("--session", "-s", help="The session to go on with; by default a new one."),
]
Json = Annotated[bool, typer.Option("--json", help="For scripts.")]
Tenant = Annotated[
    str | None,
    typer.Option(help="Whose; by default the tenant of the settings.", show_default=False),
]
UserName = Annotated[str, typer.Option("--user", "-u", help="Whose session it is.")]
Thoughts = Annotated[bool, typer.Option("--thoughts", help="Show what the model thinks.")]


Place = tuple[str | None, str | None, Path | None]
"""The options of the store: its URL, its schema, the settings file."""


def store_flags(url: str | None = None, schema: str | None = None) -> dict[str, Any]:
    """The store's options on the command line, as settings."""
    from lango.config.secrets import ExternalText

    store: dict[str, Any] = {} if schema is None else {"schema": schema}
    if url:  # the way to the settings' database is none to this one
        store |= {"url": ExternalText(url), "pooled": False, "direct_url": None}
    return {"store": store} if store else {}
