"""API keys: how one is written, what it may do, and how much."""

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
"""Say who the user is, request by request: for a product's backend."""
ADMIN: Final = "admin"
"""See and change what is not one user's own."""
SCOPES: Final = (CHAT, ACT_AS, ADMIN)

_KEY: Final = re.compile(r"lango_([0-9a-f]{16})_([A-Za-z0-9_-]{43})")


@dataclass(frozen=True, slots=True)
class KeyText:
    """A key as its owner has it. Nobody else keeps `secret`: shown anywhere, it is left out."""

    id: str
    secret: str = field(repr=False)

    @classmethod
    def new(cls) -> KeyText:
        """A key that nobody has: its secret has 256 random bits."""
        return cls(secrets.token_hex(8), secrets.token_urlsafe(32))

    @classmethod
    def read(cls, text: str) -> KeyText | None:
        """A key from its text; None if that is no key."""
        found = _KEY.fullmatch(text)
        return cls(*found.groups()) if found else None

    @property
    def text(self) -> str:
        """What a client sends."""
        return f"lango_{self.id}_{self.secret}"

    @property
    def hash(self) -> str:
        """SHA-256 in hex: what is stored.

        Slow hashes are there to make guessing dear. A password can be guessed, 256 random bits
        cannot, and a slow hash in every request would be a gift to whoever floods the server.
        """
        return sha256(self.secret.encode()).hexdigest()

    def fits(self, stored: str) -> bool:
        """Whether this is the key with that hash; the time taken does not tell how nearly."""
        return compare_digest(self.hash, stored)


def holds_key(text: str) -> bool:
    """Whether a key stands somewhere in a text."""
    return _KEY.search(text) is not None


@dataclass(frozen=True, slots=True)
class KeyLimits:
    """What the holder of a key, or of a token, may use; None for no limit."""

    requests: int | None = None  # in a minute
    turns: int | None = None  # at once, running or waiting to run
    cost: float | None = None  # US dollars in a day, which begins at midnight UTC

    def data(self) -> JsonObject | None:
        """The limits there are, as JSON; None if there is none."""
        return {name: value for name, value in asdict(self).items() if value is not None} or None

    @classmethod
    def of(cls, data: Mapping[str, Any] | None) -> KeyLimits:
        """The limits from their JSON; one that a newer lango added is left out."""
        known = {one.name for one in fields(cls)}
        return cls(**{name: value for name, value in (data or {}).items() if name in known})

    def checked(self) -> KeyLimits:
        """These limits; InvalidKeyError if one of them would let nothing through."""
        for name, value in asdict(self).items():
            if value is not None and not value > 0:
                raise InvalidKeyError(f"The limit of {name} must be above 0, not {value}.")
        return self


NO_LIMITS: Final = KeyLimits()


def with_implied(scopes: Iterable[str]) -> frozenset[str]:
    """The scopes and what they are no use without: who acts for others, does so by chatting."""
    given = frozenset(scopes)
    return given | {CHAT} if ACT_AS in given else given


def checked_scopes(scopes: Iterable[str]) -> frozenset[str]:
    """The scopes with those implied; InvalidKeyError for none, or one that does not exist."""
    given = with_implied(scopes)
    unknown = sorted(given.difference(SCOPES))
    if unknown or not given:
        said = f"There is no scope {', '.join(unknown)}" if unknown else "A key needs a scope"
        raise InvalidKeyError(f"{said}; there are {', '.join(SCOPES)}.")
    return given
