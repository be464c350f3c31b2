"""Encrypts credentials with AES-256-GCM: the first key encrypts, every key decrypts."""

from __future__ import annotations

import base64
import binascii
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from lango.errors import ConfigError

KEY_BYTES: Final = 32
_NONCE_BYTES: Final = 12
_ID_LENGTH: Final = 12
_WRONG_KEY: Final = (
    "credentials.keys[{}]: a key is 32 random bytes in base64; `openssl rand -base64 32` makes one."
)


@dataclass(frozen=True, slots=True)
class Sealed:
    """An encrypted text, and the id of the key that encrypted it."""

    key_id: str
    data: bytes


class Keyring:
    """The keys of `credentials.keys`; the id of a key is derived from it and reveals nothing.

    ConfigError for a key that is not 32 bytes in base64.
    """

    def __init__(self, keys: Sequence[str]) -> None:
        self._ciphers: dict[str, AESGCM] = {}
        for number, text in enumerate(keys):
            key = _key(text, number)
            self._ciphers[sha256(b"lango credential key" + key).hexdigest()[:_ID_LENGTH]] = AESGCM(
                key
            )
        self.first_id = next(iter(self._ciphers), "")

    def __bool__(self) -> bool:
        return bool(self._ciphers)

    def seal(self, text: str, bound_to: Sequence[str]) -> Sealed:
        """Encrypt a text. It decrypts only together with the same `bound_to`: its row's key."""
        nonce = os.urandom(_NONCE_BYTES)
        cipher = self._ciphers[self.first_id]
        encrypted = cipher.encrypt(nonce, text.encode(), _associated(bound_to))
        return Sealed(self.first_id, nonce + encrypted)

    def unseal(self, sealed: Sealed, bound_to: Sequence[str]) -> str | None:
        """The text; None if its key is missing, or if it was changed or is of another row."""
        cipher = self._ciphers.get(sealed.key_id)
        if cipher is None:
            return None
        nonce, encrypted = sealed.data[:_NONCE_BYTES], sealed.data[_NONCE_BYTES:]
        try:
            return cipher.decrypt(nonce, encrypted, _associated(bound_to)).decode()
        except (InvalidTag, ValueError):
            return None


def _key(text: str, number: int) -> bytes:
    try:
        key = base64.b64decode(text.strip(), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if len(key) != KEY_BYTES:
        raise ConfigError(_WRONG_KEY.format(number))
    return key


def _associated(bound_to: Sequence[str]) -> bytes:
    return json.dumps(list(bound_to), separators=(",", ":")).encode()
