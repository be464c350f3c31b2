"""Interleaved rounds and their intervals."""

import pytest

from bench.rounds import MIN_ROUNDS, Interval, Sample, Stopwatch, divide, estimate, interleave


async def test_each_round_runs_every_rounder_once_and_the_first_is_not_counted() -> None:
    calls: list[str] = []

    def rounder(name: str):
        async def run() -> Sample:
            calls.append(name)
            return Sample(wall=len(calls), cpu=0)

        return run

    samples = await interleave({name: rounder(name) for name in "abc"}, rounds=5)

    assert {name: len(series) for name, series in samples.items()} == {"a": 5, "b": 5, "c": 5}
    assert all(sorted(calls[i : i + 3]) == ["a", "b", "c"] for i in range(0, 18, 3))
    assert len({tuple(calls[i : i + 3]) for i in range(0, 18, 3)}) > 1  # the order changes
    assert min(sample.wall for series in samples.values() for sample in series) == 4


async def test_slow_ones_run_in_the_first_rounds_only() -> None:
    async def run() -> Sample:
        return Sample(1, 1)

    samples = await interleave({"fast": run, "slow": run}, 2 * MIN_ROUNDS, slow=["slow"])

    assert len(samples["fast"]) == 2 * MIN_ROUNDS
    assert len(samples["slow"]) == MIN_ROUNDS


def test_equal_rounds_leave_no_doubt() -> None:
    assert estimate([1.5] * 15) == Interval(1.5, 1.5, 1.5)


def test_the_interval_holds_the_median_and_narrows_with_rounds() -> None:
    few = estimate([1.0, 1.1, 1.2, 1.3, 1.4] * 3)
    many = estimate([1.0, 1.1, 1.2, 1.3, 1.4] * 60)

    assert few.low <= few.point <= few.high
    assert few.point == many.point == pytest.approx(1.2)
    assert many.high - many.low < few.high - few.low


def test_ratios_are_taken_round_by_round() -> None:
    # A machine that slows down for both contenders does not move their ratio.
    assert divide([2.0, 20.0], [1.0, 10.0]) == [2.0, 2.0]


def test_a_stopwatch_divides_by_the_operations() -> None:
    watch = Stopwatch(1_000)
    with watch:
        sum(range(200_000))
    whole = Stopwatch(1)
    with whole:
        sum(range(200_000))

    assert 0 < watch.sample.wall < whole.sample.wall
    assert watch.sample.cpu < whole.sample.cpu
