"""Stop sequences, for an API without them."""

from __future__ import annotations

from collections.abc import Sequence


class StopText:
    """Passes text up to the first stop sequence, even if a sequence spans deltas."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = [stop for stop in stops if stop]
        self._pending = ""
        self.reached = False

    def feed(self, text: str) -> str:
        """The text that may be shown; holds back an end where a stop sequence could start."""
        if self.reached or not self._stops:
            return "" if self.reached else text
        self._pending += text
        positions = [
            position for stop in self._stops if (position := self._pending.find(stop)) >= 0
        ]
        if positions:
            self.reached = True
            output, self._pending = self._pending[: min(positions)], ""
            return output
        keep = max(_overlap(self._pending, stop) for stop in self._stops)
        cut = len(self._pending) - keep
        output, self._pending = self._pending[:cut], self._pending[cut:]
        return output

    def rest(self) -> str:
        """The text still held back at the end."""
        text, self._pending = self._pending, ""
        return text


def _overlap(text: str, stop: str) -> int:
    """The length of the longest end of the text that starts the stop sequence."""
    longest = min(len(text), len(stop) - 1)
    return next((n for n in range(longest, 0, -1) if text.endswith(stop[:n])), 0)
