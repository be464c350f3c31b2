"""Simulated deaths within a process: from one failpoint on, every failpoint raises."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field

from lango.core import failpoints


class Died(BaseException):
    """Stands for kill -9: no `except Exception` catches it."""


@dataclass(slots=True)
class Death:
    """Whether the death has happened, and the failpoints passed so far."""

    happened: bool = False
    passed: Counter[str] = field(default_factory=Counter[str])


@contextmanager
def death(point: str, times: int) -> Generator[Death]:
    """Die when a failpoint is passed for the n-th time, and at every failpoint after that."""
    found = Death()

    def armed(name: str) -> None:
        found.passed[name] += 1
        if found.happened or (name == point and found.passed[point] == times):
            found.happened = True
            raise Died

    failpoints.armed = armed
    try:
        yield found
    finally:
        failpoints.armed = None
