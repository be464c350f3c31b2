"""The benchmark of the server: every measure in one run, on databases and processes of its own."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from bench.measures import run
from bench.rounds import MIN_ROUNDS
from bench.server import crowd, listing, sides
from bench.targets import settle

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from bench.targets import Result

_QUICK_ROUNDS: Final = 3
_AT_MOST: Final = 3_600.0
"""Seconds after which a run counts as hung, even on a busy machine."""


def _quick() -> list[Callable[[], Awaitable[Result]]]:
    """All measures with fewer rounds: finds large regressions, not small ones."""
    return [
        *(partial(sides.side_by_side, n, _QUICK_ROUNDS) for n in sides.CLIENTS),
        partial(crowd.waiting, crowd.QUICK_WAITING),
        partial(listing.pages, _QUICK_ROUNDS),
    ]


def _full() -> list[Callable[[], Awaitable[Result]]]:
    return [
        *(partial(settle, partial(sides.side_by_side, n), MIN_ROUNDS) for n in sides.CLIENTS),
        partial(crowd.waiting, crowd.WAITING),
        partial(settle, listing.pages, MIN_ROUNDS),
    ]


async def main(*, quick: bool) -> int:
    """Run it; the exit code."""
    return await run("server", _quick() if quick else _full(), _AT_MOST)
