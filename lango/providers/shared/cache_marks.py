"""Anthropic's prompt cache: the prefix up to a mark is cached, and reading it costs a tenth.

The vendor compares prefixes: tools, instruction, messages. So a mark ends each part that the next
request starts with too. A prefix too short for the cache is sent without caching.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, cast

from lango.core.values import JsonObject

CACHE_CONTROL: Final = "cache_control"
_USER_TURNS: Final = 2
"""The last one, for the next request, and the one that was last in the previous request."""


def mark(body: JsonObject, *, cut: bool) -> None:
    """Put the marks into a Messages request; `cut`: the next request's messages start elsewhere."""
    for block in _ends(body, cut=cut):
        block[CACHE_CONTROL] = {"type": "ephemeral"}


def _ends(body: JsonObject, *, cut: bool) -> Iterator[JsonObject]:
    tools = cast("list[JsonObject]", body.get("tools") or [])
    yield from tools[-1:]
    system: Any = body.get("system")
    if system:
        body["system"] = [{"type": "text", "text": system}]
        yield from body["system"]
    if not cut:
        user_messages = [message for message in body["messages"] if message["role"] == "user"]
        for message in user_messages[-_USER_TURNS:]:
            yield message["content"][-1]
