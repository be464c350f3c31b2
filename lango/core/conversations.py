"""Conversations as those who hold them see them, and what each is known by."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256

from lango.core.values import json_text, storable_text


@dataclass(frozen=True, slots=True)
class Said:
    """One visible message."""

    role: str
    text: str


def conversation_hash(said: Iterable[Said], before: str = "") -> str:
    """What a conversation is known by: chained, so that `before` stands for all that was said."""
    for one in said:
        told = json_text([before, one.role, normalised(one.text)])
        before = sha256(told.encode()).hexdigest()
    return before


def normalised(text: str) -> str:
    """A text without what clients change on its way: white space, and how letters are composed."""
    return " ".join(unicodedata.normalize("NFC", storable_text(text)).split())
