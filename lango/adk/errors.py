"""Maps lango's errors to ADK's, and ADK's to lango's.

lango's session errors are subclasses of ADK's, so that ADK's servers and tools know them. ADK's
errors that differ only in their wording are parsed here and nowhere else.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.errors.session_not_found_error import (
    SessionNotFoundError as AdkSessionNotFoundError,
)
from google.adk.models.base_llm import BaseLlm

from lango import errors
from lango.providers.sdk_errors import model_error
from lango.providers.shared.errors import of_transport


class SessionExistsError(errors.SessionExistsError, AlreadyExistsError):
    """A session with this id exists already."""


class SessionNotFoundError(errors.SessionNotFoundError, AdkSessionNotFoundError):
    """There is no such session."""


@contextmanager
def as_adk_errors() -> Generator[None]:
    """Raise the store's errors as subclasses of ADK's."""
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
"""ADK's messages for an invalid transfer, by case; the group is the agent's name."""
_PATTERNS: Final = [re.compile(wording, re.DOTALL) for wording in UNKNOWN_AGENT.values()]


def unknown_agent(error: BaseException) -> str | None:
    """The agent that a transfer did not find; None if the error is another one."""
    if isinstance(error, errors.AgentNotFoundError):
        return error.name
    text = str(error)
    matches = (pattern.fullmatch(text) for pattern in _PATTERNS)
    return next((match[1] for match in matches if match), None)


def unwrapped(error: Exception) -> Exception:
    """lango's error from the RuntimeError in which ADK wraps what a plugin raises."""
    inner = error.__cause__
    if type(error) is RuntimeError and isinstance(inner, errors.LangoError):
        return inner
    return error


def model_failure(error: Exception) -> errors.ModelError | None:
    """lango's error for one of a model that is not lango's; None for other exceptions.

    SDKs let many connection errors through as their HTTP client raised them. A tool may raise the
    same classes, so only those that left a model's own code count.
    """
    named = model_error(error)
    if named is None and _left_a_model(error):
        return of_transport(error)
    return named


def _left_a_model(error: Exception) -> bool:
    frames = (frame for frame, _ in traceback.walk_tb(error.__traceback__))
    return any(isinstance(frame.f_locals.get("self"), BaseLlm) for frame in frames)
