"""Whether a worker still holds the turn it runs, queried only when the last proof is old.

Every write of a claimed turn proves it. A worker that was frozen since its last write may have lost
the turn: it checks before it does what no fence can refuse, such as calling a model.
"""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from lango.errors import Fenced
from lango.store.db.database import Database
from lango.store.turns import rows as turn_rows
from lango.store.turns.rows import Claim

PROOF_LASTS: Final = 1.0
"""Seconds that a proof lasts; a worker counts as dead after several times as long."""


@dataclass(slots=True)
class Proof:
    """Whether a statement proves that the claim holds."""

    counts: bool = True


class Holding:
    """The newest proof that a claim holds."""

    def __init__(self, database: Database, claim: Claim, lasts: float = PROOF_LASTS) -> None:
        self._database = database
        self.claim = claim
        self._lasts = lasts
        self._proved: tuple[float, float] | None = None

    @contextmanager
    def proving(self) -> Generator[Proof]:
        """Around a fenced statement: if it succeeds, the claim held when it began.

        If the statement found its work done already, set `counts` to False: it did not check the
        fence.
        """
        began, proof = _clocks(), Proof()
        yield proof
        if proof.counts:
            self._proved = began

    async def check(self) -> None:
        """Raise Fenced if another worker has the turn; a recent proof saves the query.

        A reply that is read long after its query is no proof: the process may have been frozen
        between the two.
        """
        while not self._is_proved():
            with self.proving():
                if not await turn_rows.still_held(self._database, self.claim):
                    raise Fenced

    def _is_proved(self) -> bool:
        if self._proved is None:
            return False
        now = _clocks()
        return all(0 <= new - old < self._lasts for new, old in zip(now, self._proved, strict=True))


def _clocks() -> tuple[float, float]:
    """Both clocks: one may stand still while a machine is suspended, and the other may jump."""
    return time.monotonic(), time.time()
