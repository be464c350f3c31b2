"""What a run of steady load shows: a verdict for each way in which it could grow."""

from dataclasses import replace

import pytest

from bench.engines.sustained import Minute, bound, findings
from bench.targets import Finding, exit_code

RATE, RETENTION = 80.0, 20.0
STEADY = Minute(4_800, 0, 20_000, 100_000, 12.0, 80.0, 180.0, 5.0, 20.0)


def judged(minutes: list[Minute], lost: int = 0) -> dict[str, Finding]:
    found = findings(minutes, rate=RATE, retention=RETENTION, lost=lost)
    return {finding.target.what.split(",")[0]: finding for finding in found}


def grown(name: str, factor: float, minutes: int = 12) -> list[Minute]:
    """A run in which one figure grows evenly by this factor in all."""
    first = getattr(STEADY, name)
    steps = [first * (1 + (factor - 1) * number / (minutes - 1)) for number in range(minutes)]
    return [replace(STEADY, **{name: step}) for step in steps]


def test_a_steady_run_is_held() -> None:
    assert exit_code(judged([STEADY] * 12).values()) == 0


def test_a_lost_turn_is_missed() -> None:
    assert judged([STEADY] * 12, lost=1)["turns lost"].outcome == "missed"


def test_a_log_that_is_not_trimmed_is_missed() -> None:
    rows = [replace(STEADY, log_rows=3 * 4_800 * number) for number in range(1, 13)]
    assert judged(rows)["rows of turn_events"].outcome == "missed"


def test_the_bound_is_that_of_the_retention_and_one_round_of_upkeep() -> None:
    assert bound(RATE, RETENTION) == pytest.approx(3 * 80 * (20 + 90 + 15))


@pytest.mark.parametrize(
    ("name", "factor", "what"),
    [("log_size", 12.0, "size of turn_events"), ("memory", 1.3, "memory of the worker")],
)
def test_what_grows_is_missed(name: str, factor: float, what: str) -> None:
    assert judged(grown(name, factor))[what].outcome == "missed"


def test_a_short_run_shows_nothing() -> None:
    found = judged([STEADY, STEADY])
    assert found["rows of turn_events"].outcome == "not shown"
    assert found["memory of the worker"].outcome == "not shown"
    assert exit_code(found.values()) == 3
