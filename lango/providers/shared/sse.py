"""Parses server-sent events, however the network splits their bytes (record 25)."""

from __future__ import annotations

from codecs import BOM_UTF8
from typing import TypeAlias

ServerSentEvent: TypeAlias = tuple[bytes, bytes]
"""The event's name, empty if it has none, and its data."""


class EventStreamParser:
    """Parses one `text/event-stream` body, as the WHATWG's HTML standard defines it.

    An event that the end of the body cuts off is never returned. Names without data are: vendors
    report errors so.
    """

    __slots__ = ("_after_cr", "_data", "_is_first", "_line", "_name")

    def __init__(self) -> None:
        self._line: list[bytes] = []  # the pieces of an unfinished line
        self._after_cr = False  # a line feed now would end the same line once more
        self._is_first = True  # a byte order mark may precede the first line
        self._name = b""
        self._data: list[bytes] = []

    def feed(self, piece: bytes) -> list[ServerSentEvent]:
        """The events that these bytes complete."""
        events: list[ServerSentEvent] = []
        for line in self._lines(piece):
            if self._is_first:
                line, self._is_first = line.removeprefix(BOM_UTF8), False
            if line:
                self._field(line)
            elif self._data or self._name:
                events.append((self._name, b"\n".join(self._data)))
                self._name, self._data = b"", []
        return events

    def _field(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        if name == b"data":
            self._data.append(value.removeprefix(b" "))
        elif name == b"event":
            self._name = value.removeprefix(b" ")

    def _lines(self, piece: bytes) -> list[bytes]:
        """The lines that these bytes complete; a line ends with CR, LF or both."""
        if not piece:
            return []
        if self._after_cr and piece.startswith(b"\n"):
            piece, self._after_cr = piece[1:], False
            if not piece:
                return []
        self._after_cr = piece.endswith(b"\r")
        lines = piece.splitlines()  # of bytes, which end at nothing else
        last = b"" if piece.endswith((b"\n", b"\r")) else lines.pop()
        if self._line and lines:
            lines[0] = b"".join((*self._line, lines[0]))
            self._line.clear()
        if last:
            self._line.append(last)
        return lines
