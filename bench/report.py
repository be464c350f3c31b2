"""The printed report: tables that read as text and paste as Markdown."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.targets import Finding


@dataclass(frozen=True, slots=True)
class Table:
    """One measure's figures."""

    title: str
    columns: Sequence[str]
    rows: list[Sequence[str]] = field(default_factory=list["Sequence[str]"])

    def add(self, *cells: object) -> None:
        """Add a row."""
        self.rows.append([str(cell) for cell in cells])

    def __str__(self) -> str:
        lines = [list(self.columns), *self.rows]
        widths = [max(len(line[i]) for line in lines) for i in range(len(self.columns))]
        text = [_line(line, widths) for line in lines]
        text.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
        return "\n".join([f"## {self.title}", "", *text, ""])


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = [
        cell.rjust(width) if i else cell.ljust(width)
        for i, (cell, width) in enumerate(zip(cells, widths, strict=True))
    ]
    return "| " + " | ".join(padded) + " |"


def verdicts(findings: Sequence[Finding]) -> Table:
    """The table of targets."""
    table = Table("Targets", ("what", "target", "measured", "outcome"))
    for finding in findings:
        table.add(finding.target.what, finding.target, finding.figure, finding.outcome)
    return table


def summary(area: str, findings: Sequence[Finding], seconds: float) -> str:
    """The last line."""
    counts = Counter(finding.outcome for finding in findings)
    text = f"{area}: {counts['held']}/{len(findings)} targets held"
    for outcome in ("missed", "not shown"):
        names = [f.target.what for f in findings if f.outcome == outcome]
        if names:
            text += f"; {outcome}: {', '.join(names)}"
    return f"{text} ({seconds:.0f} s)"


def micros(seconds: float) -> str:
    """A time as microseconds."""
    return f"{seconds * 1e6:,.0f}"


def millis(seconds: float) -> str:
    """A time as milliseconds."""
    return f"{seconds * 1e3:,.1f}"
