"""Anthropic's prompt cache: a request is kept up to a mark, and read from there costs a tenth.

The vendor compares from the beginning: tools, instruction, messages. So there is a mark behind
each part that the next request begins with too. What is too short to be kept is just sent.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, cast

from lango.core.values import JsonObject

CACHE_CONTROL: Final = "cache_control"
_USER_TURNS: Final = 2
"""The last one, for the next request, and the one before: it was the last of the request before."""


def mark(body: JsonObject, *, cut: bool) -> JsonObject:
    """Put the marks into a request for Messages; `cut`: its messages begin elsewhere next time."""
    for block in _ends(body, cut=cut):
        block[CACHE_CONTROL] = {"type": "ephemeral"}
    return body


def _ends(body: JsonObject, *, cut: bool) -> Iterator[JsonObject]:
    tools = cast("list[JsonObject]", body.get("tools") or [])
    yield from tools[-1:]
    system: Any = body.get("system")
    if system:
        body["system"] = [{"type": "text", "text": system}]
        yield from body["system"]
    if not cut:
        said = [message for message in body["messages"] if message["role"] == "user"]
        for message in said[-_USER_TURNS:]:
            yield message["content"][-1]
