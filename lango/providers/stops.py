"""Stop sequences, for a wire whose vendor knows none."""

from __future__ import annotations

from collections.abc import Sequence


class StopText:
    """Lets text through up to the first stop sequence, however the text is cut into deltas."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = [stop for stop in stops if stop]
        self._held = ""
        self.reached = False

    def feed(self, text: str) -> str:
        """What may be shown of the text so far: the end is held while a stop could begin there."""
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
        """What was held at the end of the text."""
        held, self._held = self._held, ""
        return held


def _overlap(text: str, stop: str) -> int:
    """How much of the end of the text is a beginning of the stop sequence."""
    longest = min(len(text), len(stop) - 1)
    return next((n for n in range(longest, 0, -1) if text.endswith(stop[:n])), 0)
