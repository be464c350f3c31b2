"""Named places where a test can end or freeze the process; nothing at all otherwise."""

from __future__ import annotations

from collections.abc import Callable

armed: Callable[[str], None] | None = None
"""Set by `lango.testing` alone."""


def failpoint(name: str) -> None:
    """Pass a named point; only an armed test does anything here."""
    if armed is not None:
        armed(name)
