"""Exports sessions to files and imports them, with a progress bar."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)

from lango.cli.opened import OpenStore
from lango.errors import ConfigError, ImportSourceError
from lango.store.transfer.export import SessionExport
from lango.store.transfer.restore import NewNames, RestoreResult, restore_session

Advance = Callable[[int], None]


async def export_to(export: SessionExport, file: BinaryIO) -> int:
    """Write an export, and return its size."""
    size = 0
    with progress_bar("exporting", export.entries, MofNCompleteColumn()) as advance:
        async for line in export.lines(advance):
            size += file.write(line)
    return size


@contextmanager
def atomic_file(path: Path, *, force: bool) -> Generator[BinaryIO]:
    """A file to write; it gets its name only when it is complete."""
    if path.exists() and not force:
        raise ConfigError(f"{path} exists already. Choose another name, or pass --force.")
    part = path.with_name(f"{path.name}.part")
    try:
        with part.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}.") from error
    finally:
        part.unlink(missing_ok=True)


async def import_from(opened: OpenStore, path: Path, names: dict[str, str | None]) -> RestoreResult:
    """Import the session of a file."""
    new_names, database = NewNames(opened.tenant, **names), opened.store.database
    passes = 1 if database.objects is None else 2
    try:
        with progress_bar("importing", passes * _size(path), DownloadColumn()) as advance:
            return await restore_session(database, lambda: _lines(path, advance), new_names)
    except OSError as error:
        raise ImportSourceError(f"{path} cannot be read: {error.strerror}.") from error


def _size(path: Path) -> int:
    return path.stat().st_size


def _lines(path: Path, advance: Advance) -> Iterator[bytes]:
    with path.open("rb") as file:
        for line in file:
            yield line
            advance(len(line))


@contextmanager
def progress_bar(label: str, total: int, figures: ProgressColumn) -> Generator[Advance]:
    """Show a progress bar on standard error if it is a terminal; yields how to advance it."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), figures, TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task(label, total=total)
        yield lambda done: progress.advance(task, done)
