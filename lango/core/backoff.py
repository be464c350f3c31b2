"""How long to wait before trying again."""

from __future__ import annotations

import random
from collections.abc import Iterator


def delays(
    tries: int, *, first: float = 0.05, factor: float = 2.0, cap: float = 2.0
) -> Iterator[float]:
    """Waits between tries: growing, capped, each shortened at random so that crowds spread out."""
    delay = first
    for _ in range(tries):
        yield delay * random.uniform(0.5, 1.0)  # noqa: S311 - spreads load, guards nothing
        delay = min(delay * factor, cap)
