"""Shell completion of names that can be read quickly."""

from __future__ import annotations

from typing import Annotated

import typer


def app_names(incomplete: str) -> list[str]:
    """The apps of the settings; none if these cannot be read: completion prints no errors."""
    from lango.config.load import load
    from lango.errors import LangoError

    try:
        apps = load(None, {}).settings.apps
    except (LangoError, OSError):
        return []
    return [name for name in apps if name.startswith(incomplete)]


AppName = Annotated[
    str | None, typer.Option("--app", help="Filter by app.", autocompletion=app_names)
]
AnyUser = Annotated[str | None, typer.Option("--user", "-u", help="Filter by user.")]
