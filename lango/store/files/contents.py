"""The bytes of files: to be saved, or already in the object store."""

from __future__ import annotations

import hashlib
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, Protocol, Self

CHUNK: Final = 1 << 20


class Content(Protocol):
    """Bytes to save that need not be in memory; read again when a transaction is retried."""

    @property
    def size(self) -> int:
        """The number of bytes."""
        ...

    @property
    def sha256(self) -> str:
        """Their SHA-256, in hex."""
        ...

    def chunks(self) -> Iterator[bytes]:
        """All of them in order, CHUNK at a time."""
        ...


@dataclass(frozen=True, slots=True)
class BytesInMemory:
    """Bytes in memory."""

    data: bytes

    @property
    def size(self) -> int:
        """The number of bytes."""
        return len(self.data)

    @property
    def sha256(self) -> str:
        """Their SHA-256, in hex."""
        return hashlib.sha256(self.data).hexdigest()

    def chunks(self) -> Iterator[bytes]:
        """All of them in order, CHUNK at a time."""
        return (self.data[start : start + CHUNK] for start in range(0, len(self.data), CHUNK))


class SpooledContent:
    """Bytes that arrive in pieces: on disk, if they are many, until the block ends."""

    def __init__(self) -> None:
        self.size = 0
        self._hash = hashlib.sha256()
        self._file = tempfile.SpooledTemporaryFile(max_size=CHUNK)  # noqa: SIM115 - see __exit__

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def write(self, piece: bytes) -> None:
        """Add the next bytes."""
        self.size += len(piece)
        self._hash.update(piece)
        self._file.write(piece)

    def clear(self) -> None:
        """Begin anew, without bytes."""
        self.size = 0
        self._hash = hashlib.sha256()
        self._file.seek(0)
        self._file.truncate()

    @property
    def sha256(self) -> str:
        """The SHA-256 of the bytes so far, in hex."""
        return self._hash.hexdigest()

    def chunks(self) -> Iterator[bytes]:
        """The bytes so far, from the first."""
        self._file.seek(0)
        return iter(lambda: self._file.read(CHUNK), b"")


@dataclass(frozen=True, slots=True)
class ObjectContent:
    """Bytes that are in the object store: a row refers to them by their key."""

    key: str
    size: int
    sha256: str
    stored: float | None = field(default=None, compare=False)
    """When they were stored, for a first row; None if a row refers to them already."""

    @property
    def age(self) -> float:
        """Seconds for which no row has referred to them."""
        return 0.0 if self.stored is None else time.time() - self.stored

    def chunks(self) -> Iterator[bytes]:
        """None: the database has nothing to save."""
        return iter(())
