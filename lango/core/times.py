"""Stored seconds as UTC datetimes."""

from __future__ import annotations

from datetime import UTC, datetime


def moment(seconds: float) -> datetime:
    """The UTC datetime of epoch seconds."""
    return datetime.fromtimestamp(seconds, UTC)


def moment_or_none(seconds: float | None) -> datetime | None:
    """The same; None for None."""
    return None if seconds is None else moment(seconds)
