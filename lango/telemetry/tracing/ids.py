"""The ids of a turn's spans, which every process derives from the turn's id.

So a worker continues the trace of another process, and its attempt links to an earlier one, without
anything but the `traceparent` of the request in the turn's row.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

_TRACEPARENT: Final = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")
_SAMPLED: Final = 1
_SPAN_BYTES: Final = 8
_TRACE_BYTES: Final = 16


def span_id_of(*names: object) -> int:
    """The id of the span with these names; never zero, which means no span."""
    return _number(_SPAN_BYTES, "span", *names)


def trace_id_of_turn(turn_id: str) -> int:
    """The trace of a turn that no traced request has submitted."""
    return _number(_TRACE_BYTES, "trace", turn_id)


def _number(length: int, *names: object) -> int:
    digest = sha256("/".join(map(str, names)).encode()).digest()
    return int.from_bytes(digest[:length]) or 1


@dataclass(frozen=True, slots=True)
class TraceParent:
    """A span in another process, in the form of W3C Trace Context."""

    trace_id: int
    span_id: int
    sampled: bool

    @classmethod
    def parse(cls, text: str | None) -> TraceParent | None:
        """Read a `traceparent`; None if it is missing or invalid."""
        found = _TRACEPARENT.fullmatch(text or "")
        if found is None:
            return None
        trace_id, span_id, flags = (int(group, 16) for group in found.groups())
        return cls(trace_id, span_id, bool(flags & _SAMPLED)) if trace_id and span_id else None

    def __str__(self) -> str:
        return f"00-{self.trace_id:032x}-{self.span_id:016x}-{int(self.sampled):02x}"


def trace_id_in(traceparent: str | None) -> str | None:
    """The trace id (32 hex digits) in a `traceparent`."""
    parent = TraceParent.parse(traceparent)
    return None if parent is None else f"{parent.trace_id:032x}"
