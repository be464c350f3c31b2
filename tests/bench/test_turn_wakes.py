"""How latencies are told."""

from bench.report import millis
from bench.turns.wakes import spread


def test_a_time_in_milliseconds() -> None:
    assert millis(0.0123) == "12.3"
    assert millis(1.5) == "1,500.0"


def test_median_95th_percentile_and_worst() -> None:
    assert spread([number / 1000 for number in range(1, 100)]) == ("50.0", "95.0", "99.0")
