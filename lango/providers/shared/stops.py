"""Stop sequences, for an API without them."""

from __future__ import annotations

from collections.abc import Sequence


class StopText:
    """Passes text up to the first stop sequence, even if a sequence spans deltas."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = [stop for stop in stops if stop]
        self._held = ""
        self.reached = False

    def feed(self, text: str) -> str:
        """The text that may be shown; holds back an end where a stop sequence could start."""
        if self.reached or not self._stops:
            return "" if self.reached else text
        self._held += text
        found = [at for stop in self._stops if (at := self._held.find(stop)) >= 0]
        if found:
            self.reached = True
            shown, self._held = self._held[: min(found)], ""
            return shown
        keep = max(_overlap(self._held, stop) for stop in self._stops)
        cut = len(self._held) - keep
        shown, self._held = self._held[:cut], self._held[cut:]
        return shown

    def rest(self) -> str:
        """The text still held back at the end."""
        held, self._held = self._held, ""
        return held


def _overlap(text: str, stop: str) -> int:
    """The length of the longest end of the text that starts the stop sequence."""
    longest = min(len(text), len(stop) - 1)
    return next((n for n in range(longest, 0, -1) if text.endswith(stop[:n])), 0)
