"""The part of a file that a client asks for, by `Range` and `If-Range` (RFC 9110, section 14).

By hand: Starlette answers ranges only of files on disk.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

from fastapi import HTTPException

_DIGITS: Final = 18
"""More of them than any file has bytes; longer numbers are refused before they are parsed."""
_ONE_RANGE: Final = re.compile(rf"bytes=([0-9]{{0,{_DIGITS}}})-([0-9]{{0,{_DIGITS}}})", re.ASCII)


@dataclass(frozen=True, slots=True)
class ByteRange:
    """Bytes from `start` to before `end` of a file with `size` bytes."""

    start: int
    end: int
    size: int
    is_part: bool = True

    @property
    def status(self) -> HTTPStatus:
        """The status of its response."""
        return HTTPStatus.PARTIAL_CONTENT if self.is_part else HTTPStatus.OK

    @property
    def headers(self) -> dict[str, str]:
        """The headers of its response."""
        headers = {"Accept-Ranges": "bytes", "Content-Length": str(self.end - self.start)}
        if not self.is_part:
            return headers
        return headers | {"Content-Range": f"bytes {self.start}-{self.end - 1}/{self.size}"}


def requested_range(headers: Mapping[str, str], size: int, etag: str) -> ByteRange:
    """The range of a request, else the whole file; HTTPException 416 if the file ends before it.

    As the RFC allows, several ranges in one request, or other units, get the whole file. So does
    a client whose copy has another ETag: its parts would not fit together.
    """
    whole = ByteRange(0, size, size, is_part=False)
    match = _ONE_RANGE.fullmatch(headers.get("range", "").strip())
    if match is None or headers.get("if-range", etag) != etag:
        return whole
    first, last = match.groups()
    if not first and not last:
        return whole
    if not first:
        start, end = max(size - int(last), 0), size
    else:
        start, end = int(first), min(int(last) + 1, size) if last else size
        if last and int(last) < start:
            return whole
    if start >= size:
        content_range = {"Content-Range": f"bytes */{size}"}
        raise HTTPException(HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE, headers=content_range)
    return ByteRange(start, end, size)
