"""Backoff between retries."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator


def delays(tries: int | None = None, *, first: float = 0.05, cap: float = 2.0) -> Iterator[float]:
    """Exponential backoff: `tries` waits, or endless ones, that double up to a cap, with jitter."""
    delay = first
    for _ in itertools.count() if tries is None else range(tries):
        yield delay * random.uniform(0.5, 1.0)  # noqa: S311 - jitter, not cryptography
        delay = min(2 * delay, cap)
