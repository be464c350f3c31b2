"""Parses and formats times at the terminal."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Annotated, Final

import typer

_AGO: Final = re.compile(r"(\d{1,6})([mhdw])")
_UNITS: Final = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_STEPS: Final = ((604_800, "w"), (86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


def moment_of(text: str) -> datetime:
    """Parse an age (`90m`, `12h`, `7d`, `2w`), a day or a time; without a zone it is UTC."""
    ago = _AGO.fullmatch(text.strip())
    try:
        if ago:
            return datetime.now(UTC) - timedelta(**{_UNITS[ago[2]]: int(ago[1])})
        parsed = datetime.fromisoformat(text.strip())
        return (parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError) as problem:
        raise typer.BadParameter(
            f"{text!r} is no time. Pass an age (7d, 12h, 30m), or a day or time: 2026-01-31."
        ) from problem


Since = Annotated[
    datetime | None,
    typer.Option(
        parser=moment_of,
        metavar="WHEN",
        help="From an age (7d, 12h) or a time (2026-01-31) on.",
    ),
]
Until = Annotated[
    datetime | None,
    typer.Option(parser=moment_of, metavar="WHEN", help="Before an age or a time."),
]


def exact(moment: datetime) -> str:
    """The UTC time, to the second."""
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC"


def age(moment: datetime) -> str:
    """How long ago it was, in its largest unit."""
    seconds = (datetime.now(UTC) - moment).total_seconds()
    for size, unit in _STEPS:
        if seconds >= size:
            return f"{int(seconds // size)} {unit} ago"
    return "now"


def span(seconds: float) -> str:
    """A duration, in short form."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 100:
        return f"{seconds:.1f} s"
    minutes, remainder = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {remainder} s"
