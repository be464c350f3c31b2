"""The targets, and the rule by which one is held, missed or not shown."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from bench.report import Table
    from bench.rounds import Interval

Outcome: TypeAlias = Literal["held", "missed", "not shown"]


@dataclass(frozen=True, slots=True)
class Target:
    """A limit a figure must not pass."""

    what: str
    limit: float
    at_least: bool = False
    unit: str = "×"

    def __str__(self) -> str:
        return f"{'≥' if self.at_least else '≤'} {self.limit:,g} {self.unit}"

    def judge(self, figure: Interval) -> Outcome:
        """Missed when the whole interval lies beyond the limit, held when none of it does.

        An interval on both sides is wider than the margin it should show: nothing is shown.
        """
        if self.at_least:
            missed, held = figure.high < self.limit, figure.low >= self.limit
        else:
            missed, held = figure.low > self.limit, figure.high <= self.limit
        return "missed" if missed else "held" if held else "not shown"


@dataclass(frozen=True, slots=True)
class Finding:
    """A target and what was measured for it."""

    target: Target
    figure: Interval

    @property
    def outcome(self) -> Outcome:
        """Whether the target was reached."""
        return self.target.judge(self.figure)


@dataclass(frozen=True, slots=True)
class Result:
    """The result of one measure: tables for the reader, findings for the verdict."""

    tables: list[Table]
    findings: list[Finding] = field(default_factory=list[Finding])


async def settle(measure: Callable[[int], Awaitable[Result]], rounds: int) -> Result:
    """Run a measure; once more with twice the rounds if they could not show every target."""
    result = await measure(rounds)
    if any(finding.outcome == "not shown" for finding in result.findings):
        return await measure(2 * rounds)
    return result


def exit_code(findings: Iterable[Finding]) -> int:
    """0 when all held, 1 when any was missed, 3 when none was but some were not shown."""
    outcomes = {finding.outcome for finding in findings}
    if "missed" in outcomes:
        return 1
    return 3 if "not shown" in outcomes else 0
