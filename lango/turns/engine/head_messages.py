"""Sessions with work as messages of an engine: small JSON with a version."""

from __future__ import annotations

from typing import Any, Final

from lango.core.values import JsonObject
from lango.store.turns.rows import Head

VERSION: Final = 1


def encode_head(head: Head) -> JsonObject:
    """A session with work as a message."""
    return {
        "v": VERSION,
        "session": head.session_pk,
        "turn": head.turn,
        "app": head.app,
        "tenant": head.tenant,
        "run_at": head.run_at,
    }


def decode_head(message: Any) -> Head | None:
    """The session of a message; None if another version of lango wrote it."""
    try:
        if message["v"] != VERSION:
            return None
        return Head(
            session_pk=int(message["session"]),
            app=str(message["app"]),
            tenant=str(message["tenant"]),
            turn=str(message["turn"]),
            run_at=None if message["run_at"] is None else float(message["run_at"]),
        )
    except (KeyError, TypeError, ValueError):
        return None
