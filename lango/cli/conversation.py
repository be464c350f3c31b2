"""From a command line to a conversation: settings, application, agent, session."""

from __future__ import annotations

import shlex
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

from lango.app import Application
from lango.cli.background import Background
from lango.cli.options import DEFAULT_USER
from lango.cli.screen import Screen
from lango.cli.talk import Ask, Talk
from lango.config.load import load


@dataclass(frozen=True, slots=True)
class Conversation:
    """A session of an app, ready to go on."""

    app: str
    session: str
    is_new: bool
    talk: Talk
    again: str  # the command that goes on with it


@contextmanager
def conversation(
    target: str | None,
    config: Path | None,
    flags: Mapping[str, Any],
    screen: Screen,
    user: str,
    session: str | None,
    ask: Ask | None,
) -> Generator[Conversation]:
    """A conversation, for as long as the block runs."""
    application = Application(load(config, flags))
    name = application.app_name(target)
    with Background() as background:
        background.run(application.open())
        try:
            agent = background.run(application.agent(name))
            chosen = session or uuid4().hex[:12]
            talk = Talk(background, agent, screen, user=user, session=chosen, ask=ask)
            again = _again(target, user, chosen)
            yield Conversation(name, chosen, session is None, talk, again)
        finally:
            background.run(application.close())


def _again(target: str | None, user: str, session: str) -> str:
    said = ["lango", "chat", *([target] if target else []), "--session", session]
    return shlex.join([*said, "--user", user] if user != DEFAULT_USER else said)
