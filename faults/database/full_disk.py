"""A disk that can be full: a small file system, or a file size limit where mounting is denied."""

from __future__ import annotations

import errno
import resource
import shutil
import subprocess
import tempfile
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from pathlib import Path
from typing import Final

_FILLER: Final = "filler"
_PIECE: Final = bytes(64 * 1024)


class SmallDisk:
    """A folder on a file system of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def fill(self, _: Iterable[int]) -> None:
        """Leave no free block."""
        with (self.folder / _FILLER).open("ab", buffering=0) as filler:
            for piece in (_PIECE, _PIECE[:1]):
                try:
                    while filler.write(piece):
                        pass
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise

    def free(self) -> None:
        """Give the blocks back."""
        (self.folder / _FILLER).unlink()


class LimitedFiles:
    """A folder in which the files of some processes cannot grow: for users who may not mount.

    The error is "File too large" where a full disk has "No space left on device".
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._limited: list[tuple[int, tuple[int, int]]] = []

    def fill(self, processes: Iterable[int]) -> None:
        """Let no file of the processes grow over the largest one in the folder."""
        largest = max(file.stat().st_size for file in self.folder.iterdir())
        for process in processes:
            before = resource.prlimit(process, resource.RLIMIT_FSIZE)
            resource.prlimit(process, resource.RLIMIT_FSIZE, (largest, before[1]))
            self._limited.append((process, before))

    def free(self) -> None:
        """Let files grow as before."""
        for process, before in self._limited:
            resource.prlimit(process, resource.RLIMIT_FSIZE, before)
        self._limited.clear()


@contextmanager
def small_disk(megabytes: int = 48) -> Generator[SmallDisk | LimitedFiles]:
    """A disk that is removed at the end."""
    with tempfile.TemporaryDirectory(prefix="lango-") as name:
        folder = Path(name)
        if not _ran("mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "lango", name):
            yield LimitedFiles(folder)
            return
        try:
            yield SmallDisk(folder)
        finally:
            _ran("umount", "--lazy", name)


def _ran(program: str, *arguments: str) -> bool:
    """Whether a program exists and succeeded."""
    found = shutil.which(program)
    if found is None:
        return False
    done = subprocess.run((found, *arguments), capture_output=True, check=False)
    return done.returncode == 0
