"""Times as they are shown: stored seconds as moments of UTC."""

from __future__ import annotations

from datetime import UTC, datetime


def moment(seconds: float) -> datetime:
    """The moment so many seconds after the epoch."""
    return datetime.fromtimestamp(seconds, UTC)


def moment_or_none(seconds: float | None) -> datetime | None:
    """The same for what may not have happened."""
    return None if seconds is None else moment(seconds)
