"""Ids: creating our own, and validating those of others."""

from __future__ import annotations

import os
import re
import time
from hashlib import sha256

from lango.errors import InvalidIdError

MAX_ID_LENGTH = 256
MAX_KEY_BYTES = 2_560
"""Maximum UTF-8 bytes of all columns of a unique key together: PostgreSQL's index limit."""
MAX_SESSION_KEY_BYTES = 2_000
"""The same for a session's names alone: leaves room for the keys of what the session holds."""
_MAX_BYTES_PER_CHARACTER = 4

# C0, DEL and C1 controls, and lone surrogates: some database, log or terminal would not keep them.
_FORBIDDEN = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")


def check_id(kind: str, value: str, room: int = MAX_ID_LENGTH) -> str:
    """Return `value` unchanged if it is a valid id; raise InvalidIdError otherwise."""
    if 0 < len(value) <= room and (value.isalnum() or not _FORBIDDEN.search(value)):
        return value
    if not value:
        problem = "is empty"
    elif len(value) > room:
        problem = f"has {len(value)} characters, {room} at most are allowed"
    else:
        problem = "holds a control character or a lone surrogate"
    raise InvalidIdError(f"The {kind} {problem}: {value[:40]!r}")


def check_key(kind: str, *columns: str, room: int = MAX_KEY_BYTES) -> None:
    """Raise InvalidIdError if the columns of a key (the kind's own last) exceed `room` bytes."""
    if sum(map(len, columns)) * _MAX_BYTES_PER_CHARACTER <= room:
        return
    size = sum(len(column.encode(errors="surrogatepass")) for column in columns)
    if size > room:
        raise InvalidIdError(
            f"The {kind} and the names of its owner have {size} bytes together, {room} at most are "
            f"allowed: {columns[-1][:40]!r}"
        )


def fitted(text: str, room: int) -> str:
    """A text of at most `room` UTF-8 bytes: a longer one is cut and ends in a hash of the whole."""
    data = text.encode(errors="surrogatepass")
    if len(data) <= room:
        return text
    digest = sha256(data).hexdigest()
    return f"{data[: room - len(digest) - 1].decode(errors='ignore')}~{digest}"


def as_id(text: str, room: int = MAX_ID_LENGTH) -> str:
    """A valid id from a text: cut to `room` characters, U+FFFD for forbidden ones."""
    return _FORBIDDEN.sub("\ufffd", text[:room])


def new_id(prefix: str) -> str:
    """A prefix and a UUIDv7 (`ses_…`): globally unique, and sorts by creation time."""
    milliseconds = time.time_ns() // 1_000_000
    random_bits = int.from_bytes(os.urandom(10), "big")
    value = (milliseconds & (1 << 48) - 1) << 80 | random_bits
    value = value & ~(0xF << 76) | 0x7 << 76  # version 7
    value = value & ~(0x3 << 62) | 0x2 << 62  # RFC 9562 variant
    return f"{prefix}_{value:032x}"
