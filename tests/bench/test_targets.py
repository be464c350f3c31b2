"""The rule by which a target is held, missed or not shown."""

import pytest

from bench.report import Table, summary
from bench.rounds import Interval
from bench.targets import Finding, Outcome, Result, Target, exit_code, settle

AT_MOST = Target("time", 1.3)
AT_LEAST = Target("throughput", 0.7, at_least=True)


@pytest.mark.parametrize(
    ("target", "low", "high", "outcome"),
    [
        (AT_MOST, 1.0, 1.3, "held"),
        (AT_MOST, 1.31, 1.5, "missed"),
        (AT_MOST, 1.2, 1.4, "not shown"),
        (AT_MOST, 1.3, 1.4, "not shown"),
        (AT_LEAST, 0.7, 0.9, "held"),
        (AT_LEAST, 0.5, 0.69, "missed"),
        (AT_LEAST, 0.6, 0.8, "not shown"),
    ],
)
def test_judged_by_the_whole_interval(
    target: Target, low: float, high: float, outcome: Outcome
) -> None:
    assert target.judge(Interval((low + high) / 2, low, high)) == outcome


def test_a_counted_figure_is_held_or_missed() -> None:
    assert AT_MOST.judge(Interval.exact(1.3)) == "held"
    assert AT_MOST.judge(Interval.exact(1.4)) == "missed"


def _finding(outcome: Outcome) -> Finding:
    intervals = {
        "held": Interval(1, 0.9, 1.1),
        "missed": Interval(2, 1.9, 2.1),
        "not shown": Interval(1.3, 1.1, 1.5),
    }
    return Finding(AT_MOST, intervals[outcome])


@pytest.mark.parametrize(
    ("outcomes", "code"),
    [
        (["held", "held"], 0),
        (["held", "missed", "not shown"], 1),
        (["held", "not shown"], 3),
        ([], 0),
    ],
)
def test_the_exit_code_tells_them_apart(outcomes: list[Outcome], code: int) -> None:
    assert exit_code(map(_finding, outcomes)) == code


@pytest.mark.parametrize(
    ("first", "runs"), [("held", [15]), ("missed", [15]), ("not shown", [15, 30])]
)
async def test_a_wide_interval_is_repeated_once_with_twice_the_rounds(
    first: Outcome, runs: list[int]
) -> None:
    requests: list[int] = []

    async def measure(rounds: int) -> Result:
        requests.append(rounds)
        return Result([], [_finding(first)])

    result = await settle(measure, 15)

    assert requests == runs
    assert [finding.outcome for finding in result.findings] == [first]


def test_the_summary_names_what_was_not_reached() -> None:
    findings = [_finding("held"), _finding("missed"), _finding("not shown")]

    line = summary("store", findings, 12.3)

    assert line == "store: 1/3 targets held; missed: time; not shown: time (12 s)"


def test_a_table_is_markdown() -> None:
    table = Table("Sizes", ("store", "bytes"))
    table.add("lango", 774)

    assert str(table) == ("## Sizes\n\n| store | bytes |\n|-------|-------|\n| lango |   774 |\n")
