"""File types: the declared type of a file, and whether its bytes match."""

from __future__ import annotations

import re
from codecs import getincrementaldecoder
from typing import Final

from lango.core.context.tokens import TEXT_TYPES
from lango.errors import MediaTypeError

FILE_TYPES: Final = (
    "application/json",
    "application/pdf",
    "audio/mpeg",
    "audio/wav",
    "image/gif",
    "image/jpeg",
    "image/png",
    "image/webp",
    "text/csv",
    "text/markdown",
    "text/plain",
)
"""Types that at least one model accepts."""

_SAME: Final = {"audio/mp3": "audio/mpeg", "audio/x-wav": "audio/wav", "image/jpg": "image/jpeg"}
_BEGINNINGS: Final = {
    "application/pdf": re.compile(rb"(?:\xef\xbb\xbf)?\s*%PDF-\d"),
    "audio/mpeg": re.compile(rb"ID3[\x02-\x04]|\xff[\xe2\xe3\xf2\xf3\xfa\xfb]"),
    "audio/wav": re.compile(rb"RIFF.{4}WAVE", re.DOTALL),
    "image/gif": re.compile(rb"GIF8[79]a"),
    "image/jpeg": re.compile(rb"\xff\xd8\xff"),
    "image/png": re.compile(rb"\x89PNG\r\n\x1a\n"),
    "image/webp": re.compile(rb"RIFF.{4}WEBP", re.DOTALL),
}
_HEAD: Final = 64  # bytes: enough to recognise each type
_CHARSETS: Final = ("", "utf-8", "utf8", "us-ascii")


def declared_type(content_type: str) -> str:
    """The normalised type of a Content-Type; MediaTypeError if its charset is not UTF-8."""
    kind, _, parameters = content_type.lower().partition(";")
    charset = re.search(r"charset\s*=\s*\"?([\w.:-]*)", parameters)
    if charset is not None and charset[1] not in _CHARSETS:
        raise MediaTypeError(f"Text is taken as UTF-8, not as {charset[1]}.")
    return _SAME.get(kind.strip(), kind.strip())


class TypeCheck:
    """Checks the bytes of a file as they stream; MediaTypeError if they do not match its type.

    A type without a signature is accepted, unless the bytes have the signature of another type.
    """

    def __init__(self, declared: str) -> None:
        self._declared = declared
        self._head: bytes | None = b""  # None: already checked
        is_text = declared.startswith(TEXT_TYPES)
        self._text = getincrementaldecoder("utf-8")("strict") if is_text else None

    def see(self, data: bytes, *, last: bool = False) -> None:
        """Check the next bytes."""
        if self._head is not None:
            self._head += data[:_HEAD]
            if last or len(self._head) >= _HEAD:
                self._look(self._head)
                self._head = None
        if self._text is not None:
            try:
                self._text.decode(data, last)
            except UnicodeDecodeError as error:
                raise MediaTypeError("The file says that it is text, and is not UTF-8.") from error

    def _look(self, head: bytes) -> None:
        actual = [kind for kind, mark in _BEGINNINGS.items() if mark.match(head)]
        expected = [self._declared] if self._declared in _BEGINNINGS else []
        if actual != expected:
            actual_type = actual[0] if actual else "something else"
            raise MediaTypeError(
                f"The file says that it is {self._declared}, and is {actual_type}."
            )
