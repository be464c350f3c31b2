"""G8: commits whose reply is lost, held back on a connection that stays open, or late."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from typing import Final

from faults.database.proxy import Proxy, ReplyFault
from faults.harness import Guarantee, Outcome, Run
from faults.turns.load import under_load
from faults.turns.workspace import TurnProcess, temporary_workspace

_SHARE: Final = 0.2
"""The share of commits with a fault."""
_KINDS: Final[dict[str, tuple[float, float, bool]]] = {
    "lost": (0.0, 0.0, False),
    "held back": (1.0, 6.0, False),  # some past the time after which a worker counts as dead
    "late": (0.05, 1.0, True),
}


class _Faults:
    """Draws the commits that get a fault, and which fault, until the count is reached."""

    def __init__(self, drawn: random.Random, count: int) -> None:
        self._drawn, self._left = drawn, count
        self.made: Counter[str] = Counter()
        self.open = asyncio.Event()
        self.spent = asyncio.Event()

    def choose(self, commit: str) -> ReplyFault | None:
        """The fault of the reply to this commit, if any."""
        if not self.open.is_set() or not self._left or self._drawn.random() > _SHARE:
            return None
        self._left -= 1
        if not self._left:
            self.spent.set()
        kind = self._drawn.choice(list(_KINDS))
        least, most, arrives = _KINDS[kind]
        self.made[f"{kind} after {commit}"] += 1
        return ReplyFault(self._drawn.uniform(least, most), arrives)

    async def until_spent(self, _: TurnProcess) -> None:
        """Start to inject faults, and wait until all are spent."""
        self.open.set()
        await self.spent.wait()


async def _trial(run: Run) -> Outcome:
    outcome, drawn = Outcome(), random.Random(run.seed)
    faults = _Faults(drawn, run.count)
    async with Proxy(run.databases.postgres, faults.choose) as proxy:
        with temporary_workspace(proxy.url) as workspace:
            await under_load(workspace, drawn, outcome, faults.until_spent)
    counts = ", ".join(f"{times} {kind}" for kind, times in sorted(faults.made.items()))
    outcome.note(f"{faults.made.total()} replies to commits: {counts}")
    return outcome


G8: Final = Guarantee(
    "G8",
    "replies to commits lost, held back or late: no client notices, nothing twice",
    full=200,
    ci=50,
    run=lambda run: asyncio.run(_trial(run)),
)
