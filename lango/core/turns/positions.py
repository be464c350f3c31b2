"""Where a reader of a turn's log is, so that it can resume in any process.

Streamed text may reach a reader before the event that will contain it is written to the log. The
reader is then within that event: it has the first `length` characters of it. An attempt that is
lost has left an unwritten event, and another attempt writes a different one under the same
number; `epoch` distinguishes the two.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

POSITION: Final = r"([0-9]{1,18})(?:\.([0-9]{1,18})\.([0-9]{1,18}))?"
"""A position as text: a regular expression."""


@dataclass(frozen=True, slots=True)
class Position:
    """All events up to `number`, and of the event after it the first `length` characters."""

    number: int = 0
    length: int = 0
    epoch: int = 0  # of the attempt that streamed those characters

    def __str__(self) -> str:
        """As `parse` reads it: `12`, or `12.345.7` within event 13."""
        return f"{self.number}.{self.length}.{self.epoch}" if self.length else str(self.number)

    @classmethod
    def parse(cls, text: str) -> Position:
        """The position that `str` wrote; ValueError for any other text."""
        match = re.fullmatch(POSITION, text)
        if match is None:
            raise ValueError(f"{text!r} is not the id of an event.")
        return cls(*(int(part) for part in match.groups(default="0")))

    def has_of(self, number: int, epoch: int) -> int:
        """The characters that the reader has of an event."""
        return self.length if number == self.number + 1 and epoch == self.epoch else 0
