"""The author of a message whose row names none."""

from __future__ import annotations

from typing import Final

DEFAULT_AGENT_NAME: Final = "lango-agent"
"""The author of last resort. No ADK agent can have this name: runtimes pass a root name."""


def author_of(role: str, author: str, root_agent_name: str = "") -> str:
    """The stored author; else "user" for a user message, and the root agent for others.

    Never the bare role: ADK warns about an author that is not an agent's name ("model"), and drops
    the call that a message by "tool" answers.
    """
    if author:
        return author
    return "user" if role == "user" else root_agent_name or DEFAULT_AGENT_NAME
