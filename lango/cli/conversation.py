"""Opens a conversation for a command: settings, application, agent, session."""

from __future__ import annotations

import shlex
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from uuid import uuid4

import typer

from lango.agent.agent import Agent
from lango.app import Application
from lango.cli.background import Background
from lango.cli.options import DEFAULT_USER
from lango.cli.output.printable import printable
from lango.cli.output.screen import Screen
from lango.cli.talk import Ask, TerminalChat
from lango.config.load import LoadedSettings
from lango.core.redaction import redacted
from lango.errors import SessionNotFoundError
from lango.store.sessions.entries import SessionKey

_NEW: Final = "Session {} is new. `lango sessions list` shows the others."


@dataclass(frozen=True, slots=True)
class OpenSession:
    """An open session of an app."""

    app: str
    session: str
    is_new: bool
    talk: TerminalChat
    resume_command: str  # the command that continues it


@contextmanager
def conversation(
    loaded: LoadedSettings,
    target: str | None,
    config: Path | None,
    url: str | None,
    screen: Screen,
    user: str,
    session: str | None,
    ask: Ask | None,
) -> Generator[OpenSession]:
    """A conversation for the duration of the block; prints a note if the named session is new."""
    application = Application(loaded)
    name = application.app_name(target)
    with Background() as background:
        background.run(application.open())
        try:
            agent = background.run(application.agent(name))
            chosen = session or uuid4().hex[:12]
            if session is not None and not background.run(
                _exists(application, agent, user, session)
            ):
                typer.secho(_NEW.format(printable(session)), dim=True, err=True)
            talk = TerminalChat(background, agent, screen, user=user, session=chosen, ask=ask)
            resume_command = command_again(target, user, chosen, url, config)
            yield OpenSession(name, chosen, session is None, talk, resume_command)
        finally:
            background.run(application.close())


async def _exists(application: Application, agent: Agent, user: str, session: str) -> bool:
    tenant = application.settings.store.tenant
    key = SessionKey(tenant, agent.runner.app.name, user, session).checked()
    try:
        await application.store.locate(key)
    except SessionNotFoundError:
        return False
    return True


def command_again(
    target: str | None, user: str, session: str, url: str | None, config: Path | None
) -> str:
    """The command that continues a session, with the options of this one.

    A password in the URL is masked.
    """
    words = ["lango", "chat", *([target] if target else []), "--session", session]
    if user != DEFAULT_USER:
        words += ["--user", user]
    if url is not None:
        words += ["--url", redacted(url, {})]
    if config is not None:
        words += ["--config", str(config)]
    return shlex.join(words)
