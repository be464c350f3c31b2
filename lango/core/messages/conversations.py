"""Conversations as clients see them, and the hash that identifies each."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256

from lango.core.values import json_text, storable_text


@dataclass(frozen=True, slots=True)
class VisibleMessage:
    """One visible message."""

    role: str
    text: str


def conversation_hash(messages: Iterable[VisibleMessage], before: str = "") -> str:
    """The hash that identifies a conversation: chained, `before` is that of earlier messages."""
    for message in messages:
        canonical = json_text([before, message.role, normalised(message.text)])
        before = sha256(canonical.encode()).hexdigest()
    return before


def normalised(text: str) -> str:
    """A text without differences that clients introduce: white space and Unicode composition."""
    return " ".join(unicodedata.normalize("NFC", storable_text(text)).split())
