"""Events of logs as messages of a bus: JSON with a version."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

from lango.core.values import json_text
from lango.store.turns.log import LoggedEvent

VERSION: Final = 1
_MAX_BYTES: Final = 256 << 10
"""Longer messages are sent without events: their readers look in the log."""


def encode_events(events: Sequence[LoggedEvent]) -> bytes:
    """Events as the data of a message; empty if they are too long for one."""
    rows = [[e.number, e.type, e.data, e.epoch, e.at, e.length] for e in events]
    data = json_text({"v": VERSION, "events": rows}).encode()
    return data if len(data) <= _MAX_BYTES else b""


def decode_events(data: bytes) -> list[LoggedEvent] | None:
    """The events of a message; None if it has none, or if another version of lango wrote them."""
    if not data:
        return None
    try:
        message: dict[str, Any] = json.loads(data)
        return [LoggedEvent(*row) for row in message["events"]] if message["v"] == VERSION else None
    except (ValueError, TypeError, KeyError):
        return None
