"""Options that several commands share."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from lango.core.redaction import redacted

DEFAULT_USER: Final = "user"

Config = Annotated[
    Path | None,
    typer.Option(
        "--config", "-c", help="The settings file (default: $LANGO_CONFIG, else ./lango.yaml)."
    ),
]
Url = Annotated[
    str | None,
    typer.Option(
        help="The store: postgresql://user@host/database or sqlite:///file.db "
        "(default: `store.url` of the settings).",
        show_default=False,
    ),
]
Schema = Annotated[str | None, typer.Option(help="The PostgreSQL schema that has lango's tables.")]

Target = Annotated[
    str | None,
    typer.Argument(
        metavar="APP",
        help="An app of the settings; or an ADK agent, App or Workflow by its folder or as "
        "package.module:attribute. Required unless the settings have exactly one app.",
        show_default=False,
    ),
]
SessionName = Annotated[
    str | None,
    typer.Option(
        "--session",
        "-s",
        help="Continue this session, by its own id or as `ses_…` (default: a new session).",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Tenant = Annotated[
    str | None,
    typer.Option(help="Tenant (default: `store.tenant` of the settings).", show_default=False),
]
UserName = Annotated[str, typer.Option("--user", "-u", help="The user of the session.")]
Thoughts = Annotated[bool, typer.Option("--thoughts", help="Show the model's thoughts.")]


StoreOptions = tuple[str | None, str | None, Path | None]
"""The options of the store: its URL, its schema, the settings file."""


def command_of(store_options: StoreOptions, *words: str) -> str:
    """A command to print as a hint, with the store options of this one.

    A password in the URL is masked.
    """
    url, schema, config = store_options
    flags = {
        "--url": url and redacted(url, {}),
        "--schema": schema,
        "--config": config and str(config),
    }
    arguments = [word for flag, value in flags.items() if value for word in (flag, value)]
    return shlex.join(["lango", *words, *arguments])


def store_flags(url: str | None = None, schema: str | None = None) -> dict[str, Any]:
    """The store's options on the command line, as settings."""
    from lango.config.secrets import ExternalText

    store: dict[str, Any] = {} if schema is None else {"schema": schema}
    if url:  # the settings of the connection are those of another database
        store |= {"url": ExternalText(url), "pooled": False, "direct_url": None}
    return {"store": store} if store else {}
