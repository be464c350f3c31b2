"""Draws workers, queues, running turns and failures for operators."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from lango.cli.output.moments import age, span
from lango.cli.output.printable import one_line
from lango.cli.output.tables import Column, table_of

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult

    from lango.core.fleet import FailedTurn, FleetState, RegisteredWorker, RunningTurn
    from lango.insight.operations import OperationsPicture

_VERSION: Final = 8  # characters of a fingerprint
_HEADER: Final = 3  # with the reason of a hold
_AROUND: Final = 4  # lines of a section beside its rows: empty, title, headings, what is left out
_FEWEST: Final = 2
_STATES: Final = ("queued", "running", "scheduled", "input_required")

WORKER_COLUMNS: Final = (
    Column("worker"),
    Column("state"),
    Column("heartbeat", is_number=True),
    Column("running", is_number=True),
    Column("process", is_text=True),
    Column("up", is_number=True, is_spare=True),
    Column("apps", is_text=True),
)
_QUEUE: Final = (
    Column("app", is_text=True),
    Column("tenant", is_text=True),
    Column("queued", is_number=True),
    Column("oldest", is_number=True),
    Column("running", is_number=True),
    Column("scheduled", is_number=True, is_spare=True),
    Column("input_required", is_number=True, is_spare=True),
)
_RUNNING: Final = (
    Column("turn"),
    Column("for", is_number=True),
    Column("app", is_text=True),
    Column("tenant", is_text=True),
    Column("user", is_text=True),
    Column("attempt", is_number=True, is_spare=True),
    Column("worker", is_spare=True),
)
_FAILED: Final = (
    Column("turn"),
    Column("ended"),
    Column("app", is_text=True),
    Column("tenant", is_text=True),
    Column("error", is_text=True),
    Column("cause", is_text=True),
)


def worker_row(worker: RegisteredWorker) -> list[str]:
    """The cells of a worker, as WORKER_COLUMNS has them."""
    versions = (f"{app}@{mark[:_VERSION]}" for app, mark in sorted(worker.versions.items()))
    return [
        worker.id,
        worker.state,
        f"{span(worker.silence)} ago",
        f"{worker.running:,}",
        f"{worker.host}:{worker.pid}",
        age(worker.started).removesuffix(" ago"),
        ", ".join(versions),
    ]


@dataclass(frozen=True, slots=True)
class _Section:
    title: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[str]]
    empty: str


class Screenful:
    """The newest picture, drawn as high and as wide as the terminal."""

    def __init__(self, every: float) -> None:
        self.picture: OperationsPicture | None = None
        self.problem = ""
        self._every = every

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich.text import Text

        if self.picture is not None:
            yield from _drawn(self.picture, options.max_width, options.height or console.height)
        if self.problem:
            yield Text(one_line(self.problem, options.max_width), "red")
        else:
            yield Text(f"Every {self._every:g} s. Ctrl-C ends.", "dim")


def print_picture(picture: OperationsPicture) -> None:
    """Print one picture, with all its rows."""
    from rich.console import Console

    console = Console(highlight=False)
    for part in _drawn(picture, console.width, None):
        console.print(part)


def _drawn(picture: OperationsPicture, width: int, height: int | None) -> Iterator[RenderableType]:
    """The parts of a picture, of at most `height` lines."""
    from rich.text import Text

    sections = _sections(picture)
    rooms = _rooms([len(section.rows) for section in sections], height)
    yield Text(one_line(_summary(picture), width), "bold")
    if picture.held:
        yield Text(one_line(picture.held, width), "red")
    for section, room in zip(sections, rooms, strict=True):
        yield Text(f"\n{section.title}", "bold")
        if not section.rows:
            yield Text(section.empty, "dim")
            continue
        yield table_of(section.columns, section.rows[:room], width)
        if len(section.rows) > room:
            yield Text(f"and {len(section.rows) - room} more", "dim")


def _summary(picture: OperationsPicture) -> str:
    fleet = picture.fleet
    ages = [group.oldest for group in fleet.turns if group.state == "queued" and group.oldest]
    oldest = f" (the oldest for {span(max(ages))})" if ages else ""
    lost = sum(group.count for group in fleet.unowned)
    parts = [
        f"{picture.at:%H:%M:%S} UTC",
        f"queued {fleet.count('queued'):,}{oldest}",
        f"running {fleet.count('running'):,}{f' ({lost:,} without a worker)' if lost else ''}",
        f"input_required {fleet.count('input_required'):,}",
        f"scheduled {fleet.count('scheduled'):,}",
        f"workers {fleet.alive:,}{f' ({fleet.silent:,} silent)' if fleet.silent else ''}",
    ]
    return " · ".join(parts)


def _sections(picture: OperationsPicture) -> list[_Section]:
    return [
        _Section("Open turns", _QUEUE, _queue_rows(picture.fleet), "None."),
        _Section(
            "Running, the oldest first",
            _RUNNING,
            [_running_row(turn, picture) for turn in picture.running],
            "None.",
        ),
        _Section(
            "Workers",
            WORKER_COLUMNS,
            [worker_row(worker) for worker in picture.workers],
            "None: nothing runs until `lango worker` or `lango serve` starts one.",
        ),
        _Section(
            "Failed in the last 24 h",
            _FAILED,
            [_failed_row(turn) for turn in picture.failures],
            "None.",
        ),
    ]


def _queue_rows(fleet: FleetState) -> list[list[str]]:
    """Open turns by app and tenant: the longest queue first."""
    counts: defaultdict[tuple[str, str], dict[str, int]] = defaultdict(dict)
    ages: dict[tuple[str, str], float] = {}
    for group in fleet.turns:
        owner = group.app, group.tenant
        counts[owner][group.state] = group.count
        if group.state == "queued" and group.oldest is not None:
            ages[owner] = group.oldest
    owners = sorted(counts, key=lambda owner: (-counts[owner].get("queued", 0), owner))
    return [[*owner, *_queue_cells(counts[owner], ages.get(owner))] for owner in owners]


def _queue_cells(counts: dict[str, int], oldest: float | None) -> list[str]:
    queued, *other_cells = (f"{counts.get(state, 0):,}" for state in _STATES)
    return [queued, "" if oldest is None else span(oldest), *other_cells]


def _running_row(turn: RunningTurn, picture: OperationsPicture) -> list[str]:
    return [
        turn.turn,
        span(max((picture.at - turn.started).total_seconds(), 0.0)),
        turn.app,
        turn.tenant,
        turn.user,
        str(turn.attempts),
        turn.worker or "none",
    ]


def _failed_row(turn: FailedTurn) -> list[str]:
    cause = turn.message if turn.cause is None else str(turn.cause)
    return [turn.turn, age(turn.ended), turn.app, turn.tenant, turn.error, cause]


def _rooms(lengths: Sequence[int], height: int | None) -> list[int]:
    """The rows of each section: all, or a fair share of the lines, the shortest first."""
    if height is None:
        return list(lengths)
    remaining = height - _HEADER - _AROUND * len(lengths)
    rooms = list(lengths)
    shortest_first = sorted(range(len(lengths)), key=lengths.__getitem__)
    for index, number in enumerate(shortest_first):
        share = max(remaining // (len(lengths) - index), _FEWEST)
        rooms[number] = min(lengths[number], share)
        remaining -= rooms[number]
    return rooms
