"""Opens a conversation for a command: settings, application, agent, session."""

from __future__ import annotations

import re
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final
from uuid import uuid4

import typer

from lango.agent.agent import Agent
from lango.app import Application
from lango.cli.background import Background
from lango.cli.options import DEFAULT_USER, StoreOptions, command_of
from lango.cli.output.printable import printable
from lango.cli.output.screen import Screen
from lango.cli.talk import Ask, TerminalChat
from lango.config.load import LoadedSettings
from lango.errors import ConfigError, SessionNotFoundError
from lango.store.sessions.entries import SessionKey

_NEW: Final = "Session {} is new. `{}` shows the others."
_NO_SESSION: Final = "Session {} not found. Run `{}`."
_OTHERS: Final = "Session {} belongs to the user {} in the app {}: name that app, and pass --user."
_PUBLIC_ID: Final = re.compile("ses_[0-9a-f]{32}")


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
    store_options: StoreOptions,
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
            screen.speaker = agent.root.name
            session_id = uuid4().hex[:12]
            if session is not None:
                session_id = background.run(
                    _session_id(application, agent, user, session, store_options)
                )
            talk = TerminalChat(
                background,
                agent,
                screen,
                user=user,
                session=session_id,
                ask=ask,
                store_options=store_options,
            )
            resume_command = command_again(target, user, session_id, store_options)
            yield OpenSession(name, session_id, session is None, talk, resume_command)
        finally:
            background.run(application.close())


async def _session_id(
    application: Application, agent: Agent, user: str, session: str, store_options: StoreOptions
) -> str:
    """The session's own id, also if `session` is its public id; prints a note if it is new."""
    tenant, store = application.settings.store.tenant, application.store
    key = SessionKey(tenant, agent.runner.app.name, user, session).checked()
    with suppress(SessionNotFoundError):
        await store.locate(key)
        return session
    try:
        session_key = (await store.find(tenant, None, session)).key
    except SessionNotFoundError:
        listing = command_of(store_options, "sessions", "list")
        if _PUBLIC_ID.fullmatch(session):
            raise SessionNotFoundError(_NO_SESSION.format(session, listing)) from None
        typer.secho(_NEW.format(printable(session), listing), dim=True, err=True)
        return session
    if (session_key.app_name, session_key.user_id) != (key.app_name, user):
        raise ConfigError(_OTHERS.format(session, session_key.user_id, session_key.app_name))
    return session_key.session_id


def command_again(target: str | None, user: str, session: str, store_options: StoreOptions) -> str:
    """The command that continues a session, with the options of this one."""
    words = ["chat", *([target] if target else []), "--session", session]
    if user != DEFAULT_USER:
        words += ["--user", user]
    return command_of(store_options, *words)
