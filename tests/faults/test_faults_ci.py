"""The fault table at its CI counts, through the functions that `make faults` runs.

The gate draws the same trials every time; `make faults` draws new ones.
"""

import pytest

from faults.__main__ import GUARANTEES
from faults.harness import Databases, Guarantee, Run, report

SEED = 1
ELSEWHERE = {"G18"}
"""Rows whose parts are tests of their own: in tests/server, an operation at a time."""
HERE = [each for name, each in GUARANTEES.items() if name not in ELSEWHERE]


@pytest.mark.parametrize("guarantee", HERE, ids=lambda each: each.name)
def test_guarantee(guarantee: Guarantee, sqlite_url: str, postgres_url: str) -> None:
    run = Run(guarantee.ci, SEED, Databases(sqlite_url, postgres_url))
    outcome = guarantee.run(run)
    assert not outcome.failures, report(guarantee, outcome)
