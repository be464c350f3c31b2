"""Progress of the running tool call, for those who watch its turn."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Final, Protocol


class Reporter(Protocol):
    """Takes the progress of one call; from any thread."""

    def report(self, current: float, total: float | None, text: str) -> None:
        """Take the newest progress; it neither waits nor raises."""
        ...


reporter: Final[ContextVar[Reporter | None]] = ContextVar("lango_reporter", default=None)
"""Set while a tool of a durable turn runs."""


def report_progress(current: float, total: float | None = None, text: str = "") -> None:
    """Report how far the running tool is: `current` of `total`, and what it does in a few words.

    Call it as often as you like, from any thread of the tool: only the newest report is shown.
    Outside a durable turn it does nothing.
    """
    running = reporter.get()
    if running is not None:
        running.report(current, total, text)
