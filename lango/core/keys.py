"""API keys: their text form, scopes and limits."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from hashlib import sha256
from hmac import compare_digest
from typing import Any, Final

from lango.core.values import JsonObject
from lango.errors import InvalidKeyError

CHAT: Final = "chat"
"""Hold conversations."""
ACT_AS: Final = "act_as"
"""Set the user of each request: for a product's backend."""
ADMIN: Final = "admin"
"""Read and change what does not belong to a single user."""
SCOPES: Final = (CHAT, ACT_AS, ADMIN)

_KEY: Final = re.compile(r"lango_([0-9a-f]{16})_([A-Za-z0-9_-]{43})")


@dataclass(frozen=True, slots=True)
class KeyText:
    """A key as its owner has it. The server does not store `secret`, and `repr` omits it."""

    id: str
    secret: str = field(repr=False)

    @classmethod
    def new(cls) -> KeyText:
        """A new key: its secret has 256 random bits."""
        return cls(secrets.token_hex(8), secrets.token_urlsafe(32))

    @classmethod
    def read(cls, text: str) -> KeyText | None:
        """Parse a key; None if the text is not one."""
        match = _KEY.fullmatch(text)
        return cls(*match.groups()) if match else None

    @property
    def text(self) -> str:
        """What a client sends."""
        return f"lango_{self.id}_{self.secret}"

    @property
    def hash(self) -> str:
        """The stored form of the secret: SHA-256 in hex.

        A slow hash makes guessing expensive. Passwords can be guessed, 256 random bits cannot, and
        a slow hash in every request would help attackers to overload the server.
        """
        return sha256(self.secret.encode()).hexdigest()

    def fits(self, stored: str) -> bool:
        """Whether this is the key with that hash (constant-time comparison)."""
        return compare_digest(self.hash, stored)


def holds_key(text: str) -> bool:
    """Whether a text contains a key."""
    return _KEY.search(text) is not None


@dataclass(frozen=True, slots=True)
class KeyLimits:
    """Limits for the holder of a key or a token; None for no limit."""

    requests: int | None = None  # per minute
    turns: int | None = None  # concurrent: running or waiting to run
    cost: float | None = None  # US dollars per UTC day

    def data(self) -> JsonObject | None:
        """The limits that are set, as JSON; None if none is."""
        return {name: value for name, value in asdict(self).items() if value is not None} or None

    @classmethod
    def of(cls, data: Mapping[str, Any] | None) -> KeyLimits:
        """The limits from their JSON; unknown ones, of a newer lango, are ignored."""
        limit_names = {limit.name for limit in fields(cls)}
        return cls(**{name: value for name, value in (data or {}).items() if name in limit_names})

    def checked(self) -> KeyLimits:
        """These limits; InvalidKeyError if one is not above 0."""
        for name, value in asdict(self).items():
            if value is not None and not value > 0:
                raise InvalidKeyError(f"The limit of {name} must be above 0, not {value}.")
        return self


NO_LIMITS: Final = KeyLimits()


def with_implied(scopes: Iterable[str]) -> frozenset[str]:
    """The scopes and those they imply: `act_as` implies `chat`."""
    names = frozenset(scopes)
    return names | {CHAT} if ACT_AS in names else names


def checked_scopes(scopes: Iterable[str]) -> frozenset[str]:
    """The scopes with those implied; InvalidKeyError if there is none, or an unknown one."""
    names = with_implied(scopes)
    unknown = sorted(names.difference(SCOPES))
    if unknown or not names:
        problem = f"There is no scope {', '.join(unknown)}" if unknown else "A key needs a scope"
        raise InvalidKeyError(f"{problem}; there are {', '.join(SCOPES)}.")
    return names
