"""`lango chat`: a conversation at the terminal."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

import typer

from lango.cli.options import (
    DEFAULT_USER,
    Config,
    SessionName,
    Target,
    Thoughts,
    Url,
    UserName,
)
from lango.cli.output.logs import log_servers
from lango.cli.preflight import checked_settings

EXIT: Final = "exit"
"""The line that ends a conversation, as in `adk run`."""


def chat(
    target: Target = None,
    session: SessionName = None,
    user: UserName = DEFAULT_USER,
    url: Url = None,
    config: Config = None,
    thoughts: Thoughts = False,
) -> None:
    """Talk with an agent. Ctrl-C stops an answer, `exit` or Ctrl-D ends the conversation."""
    loaded = checked_settings(url, config, [target] if target else [])
    from lango.cli.conversation import conversation  # imports ADK, which takes seconds
    from lango.cli.output.screen import TextScreen
    from lango.cli.talk import ask_at_terminal, typed

    with suppress(ImportError):  # arrow keys work if it is available
        import readline  # noqa: F401  # pyright: ignore[reportUnusedImport]
    log_servers()
    store_options = (url, None, config)
    screen = TextScreen(thoughts=thoughts, store_options=store_options)
    ask = ask_at_terminal
    with conversation(loaded, target, store_options, screen, user, session, ask) as open_session:
        typer.secho(
            f"{open_session.app} · session {open_session.session} · exit or Ctrl-D ends",
            dim=True,
            err=True,
        )
        if not open_session.is_new:
            open_session.talk.catch_up()
            open_session.talk.decide_pending()
        while (line := typed("you> ")) is not None and line.strip() != EXIT:
            if line.strip():
                open_session.talk.say(line)
        typer.secho(f"To continue: {open_session.resume_command}", dim=True, err=True)
