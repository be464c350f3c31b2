"""`lango run`: runs one turn, for scripts and quick questions."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from lango.cli.options import (
    DEFAULT_USER,
    Config,
    SessionName,
    Thoughts,
    Url,
    UserName,
)
from lango.cli.output.logs import log_servers
from lango.cli.preflight import checked_settings

Words = Annotated[
    list[str],
    typer.Argument(
        metavar="[APP] MESSAGE",
        help="The message; - reads it from standard input. APP before it (required unless the "
        "settings have exactly one app): an app of the settings, a folder, or "
        "package.module:attribute.",
    ),
]


def run(
    words: Words,
    session: SessionName = None,
    user: UserName = DEFAULT_USER,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print every event as a line of JSON.")
    ] = False,
    url: Url = None,
    config: Config = None,
    thoughts: Thoughts = False,
) -> None:
    """Run one turn. Exit code 0: answered; 1: failed; 3: waits for an answer; 130: stopped."""
    *targets, message = words
    if len(targets) > 1:
        raise typer.BadParameter("put the message in quotes: lango run [APP] MESSAGE")
    loaded = checked_settings(url, config, targets)
    from lango.cli.conversation import conversation  # imports ADK, which takes seconds
    from lango.cli.output.screen import JsonScreen, TextScreen
    from lango.cli.talk import ask_at_terminal, exit_code, print_question

    log_servers()
    store_options = (url, None, config)
    screen = JsonScreen() if as_json else TextScreen(thoughts=thoughts, store_options=store_options)
    ask = ask_at_terminal if sys.stdin.isatty() and not as_json else None
    text = sys.stdin.read() if message == "-" else message
    target = targets[0] if targets else None
    with conversation(loaded, target, store_options, screen, user, session, ask) as open_session:
        if not open_session.is_new:
            open_session.talk.catch_up()
        end = open_session.talk.say(text)
    if open_session.talk.questions and not as_json:
        for question in open_session.talk.questions if ask is None else ():
            print_question(question, err=True)
        typer.secho(f"To answer: {open_session.resume_command}", dim=True, err=True)
    elif open_session.is_new and sys.stderr.isatty() and not as_json:
        typer.secho(f"To continue: {open_session.resume_command}", dim=True, err=True)
    raise typer.Exit(exit_code(end))
