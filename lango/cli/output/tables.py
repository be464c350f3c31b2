"""Prints tables for people, and JSON for scripts."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, is_dataclass
from datetime import date
from typing import TYPE_CHECKING, Any, Final

import typer

from lango.cli.output.printable import one_line

if TYPE_CHECKING:
    from rich.table import Table

    from lango.core.messages.streams import Usage

_MAX_CELL: Final = 200
_GAP: Final = 2
_MIN_COLUMN: Final = 4
_ENOUGH: Final = 16
"""Characters that each text column gets before spare columns are shown."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table. On a narrow terminal, only texts are shortened."""

    heading: str
    is_number: bool = False
    is_text: bool = False
    is_spare: bool = False  # left out if there is no room, the last one first
    is_shared: bool = False  # in a page: printed once below it if all rows have the same value


def print_table(
    columns: Sequence[Column], rows: Iterable[Sequence[str]], *, total: Sequence[str] | None = None
) -> None:
    """Print a table as wide as the terminal, without empty columns."""
    from rich.console import Console

    console = Console(highlight=False)
    console.print(table_of(columns, rows, console.width, total=total))


def table_of(
    columns: Sequence[Column],
    rows: Iterable[Sequence[str]],
    width: int,
    *,
    total: Sequence[str] | None = None,
) -> Table:
    """A table of at most `width` characters, without empty columns."""
    from rich.markup import escape
    from rich.table import Table

    cells = [[one_line(cell, _MAX_CELL) for cell in row] for row in rows]
    widths = _widths(columns, [*cells, *([total] if total else [])])
    numbers = _fitting(columns, widths, width)
    rooms = _rooms(columns, widths, numbers, width)
    table = Table(box=None, pad_edge=False, show_footer=total is not None)
    for number in numbers:
        column = columns[number]
        table.add_column(
            column.heading,
            footer=total[number] if total else "",
            no_wrap=True,
            justify="right" if column.is_number else "left",
            min_width=rooms[number],
        )
    for row in cells:
        table.add_row(*(escape(one_line(row[number], rooms[number])) for number in numbers))
    return table


def print_folded(headings: Sequence[str], rows: Iterable[tuple[Sequence[str], bool]]) -> None:
    """Print a table with nothing cut; rows come with whether they stand out or are dimmed."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for heading in headings:
        table.add_column(heading, overflow="fold")
    for cells, stands_out in rows:
        table.add_row(*map(escape, cells), style="" if stands_out else "dim")
    Console(highlight=False).print(table)


def print_page(
    columns: Sequence[Column], rows: Sequence[Sequence[str]], next_cursor: str | None
) -> None:
    """Print a page of a list, the values that all its rows share, and the next cursor."""
    common = {
        number: _common_value(row[number] for row in rows)
        for number, column in enumerate(columns)
        if column.is_shared
    }
    numbers = [number for number in range(len(columns)) if not common.get(number)]
    print_table(
        [columns[number] for number in numbers], ([row[n] for n in numbers] for row in rows)
    )
    shared = [f"{columns[n].heading} {one_line(value, 80)}" for n, value in common.items() if value]
    if shared:
        typer.echo(f"All: {', '.join(shared)}.")
    if next_cursor:
        typer.echo(f"There are more: --cursor {next_cursor}")


def _widths(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> list[int]:
    """The width that each column needs; 0 for an empty one."""
    longest = [max((len(row[number]) for row in rows), default=0) for number in range(len(columns))]
    return [
        width and max(width, len(column.heading))
        for width, column in zip(longest, columns, strict=True)
    ]


def _fitting(columns: Sequence[Column], widths: Sequence[int], room: int) -> list[int]:
    """The columns to show: all that are not empty, without spare ones if there is no room."""
    numbers = [number for number, width in enumerate(widths) if width]

    def needed() -> int:
        least_widths = (
            min(widths[number], _ENOUGH) if columns[number].is_text else widths[number]
            for number in numbers
        )
        return sum(least_widths) + _GAP * (len(numbers) - 1)

    spare = [number for number in numbers if columns[number].is_spare]
    while spare and needed() > room:
        numbers.remove(spare.pop())
    return numbers


def _rooms(
    columns: Sequence[Column], widths: Sequence[int], numbers: Sequence[int], room: int
) -> dict[int, int]:
    """The width of each column: texts share what the others leave, the shortest first."""
    rooms = {number: widths[number] for number in numbers if not columns[number].is_text}
    texts = sorted(
        (number for number in numbers if columns[number].is_text), key=widths.__getitem__
    )
    remaining = room - sum(rooms.values()) - _GAP * (len(numbers) - 1)
    for index, number in enumerate(texts):
        share = max(remaining // (len(texts) - index), _MIN_COLUMN)
        rooms[number] = min(widths[number], share)
        remaining -= rooms[number]
    return rooms


def print_json(value: Any) -> None:
    """Print a value as JSON: dataclasses as objects, times as ISO 8601."""
    typer.echo(json.dumps(value, default=_readable, indent=2, ensure_ascii=False))


def _readable(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    return value.isoformat() if isinstance(value, date) else str(value)


def money(cost: float | None) -> str:
    """US dollars, with four decimals below one dollar; empty without a price."""
    if cost is None:
        return ""
    return f"${cost:,.2f}" if cost >= 1 else f"${cost:.4f}"


def cached(usage: Usage) -> str:
    """The cached part of the input, for use after it; empty if there is none."""
    return f" ({usage.cached:,} cached)" if usage.cached else ""


def _common_value(values: Iterable[str]) -> str | None:
    """The value that all share; None if they differ or there are none."""
    distinct = set(values)
    return distinct.pop() if len(distinct) == 1 else None
