"""Failpoints: named places where a test can kill or freeze the process; no-ops otherwise."""

from __future__ import annotations

from collections.abc import Callable

armed: Callable[[str], None] | None = None
"""Set by `lango.testing` alone."""


def failpoint(name: str) -> None:
    """Run the armed hook, if a test has set one."""
    if armed is not None:
        armed(name)
