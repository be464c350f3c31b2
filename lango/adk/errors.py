"""Our errors under ADK's names, and ADK's under ours.

Ours are ADK's too, so that its own servers and tools know them. Of ADK's, those that only their
wording tells apart are read here and nowhere else.
"""

from __future__ import annotations

import re
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.errors.session_not_found_error import (
    SessionNotFoundError as AdkSessionNotFoundError,
)

from lango import errors


class SessionExistsError(errors.SessionExistsError, AlreadyExistsError):
    """A session with this id exists already."""


class SessionNotFoundError(errors.SessionNotFoundError, AdkSessionNotFoundError):
    """There is no such session."""


@contextmanager
def as_adk_errors() -> Generator[None]:
    """Raise the store's errors as ones that are ADK's too."""
    try:
        yield
    except errors.SessionExistsError as error:
        raise SessionExistsError(str(error)) from error
    except errors.SessionNotFoundError as error:
        raise SessionNotFoundError(str(error)) from error


UNKNOWN_AGENT: Final = {
    "not found": r"Transfer target agent '(.*)' not found\.",
    "unrelated": r"Cannot transfer from '\w+' to unrelated agent '(.*?)'\.(?:\nAvailable .*)?",
    "itself": r"Agent '(.*)' cannot transfer to itself\.",
    "parent": r"Cannot transfer from '\w+' to parent agent '(.*)': \w+ is set\.",
    "peer": r"Cannot transfer from '\w+' to peer agent '(.*)': \w+ is set\.",
    "not in the tree": r"Agent (.*) not found in the agent tree\.",
    "not allowed": r"Agent \w+ is not allowed to transfer to agent (.*)\.",
    "resumed": r"Agent '(.*?)' not found\.\nAvailable agents: .*",
}
"""What ADK says when a transfer leads nowhere, by the case; the name is the group."""
_PATTERNS: Final = [re.compile(wording, re.DOTALL) for wording in UNKNOWN_AGENT.values()]


def unknown_agent(error: BaseException) -> str | None:
    """The name of the agent that a transfer did not find, if that is what the error says."""
    if isinstance(error, errors.AgentNotFoundError):
        return error.name
    text = str(error)
    matches = (pattern.fullmatch(text) for pattern in _PATTERNS)
    return next((found[1] for found in matches if found), None)


def unwrapped(error: Exception) -> Exception:
    """Our own error out of the RuntimeError into which ADK puts what a plugin raises."""
    inner = error.__cause__
    if type(error) is RuntimeError and isinstance(inner, errors.LangoError):
        return inner
    return error
