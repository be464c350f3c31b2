"""File access confined to one folder.

A path is walked down from the folder; each step is opened relative to the previous one, without
following links. There is no gap between checking a path and using it: a link swapped in during
the walk is refused too.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final
from uuid import uuid4

from lango.errors import ToolError

MAX_PATH: Final = 1_024
MAX_STEPS: Final = 64
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Non-blocking: a pipe or a device is detected only after it is open.
_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class Rooted:
    """The files under one folder, by relative paths; links are never followed."""

    def __init__(self, root: Path) -> None:
        self._root = root

    @contextmanager
    def folder(self, path: str, *, create: bool = False) -> Generator[int]:
        """A descriptor of the folder at `path`."""
        with as_tool_error(path):
            descriptor = self._walk(steps_of(path), create=create)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    @contextmanager
    def reading(self, path: str) -> Generator[int]:
        """A descriptor of the regular file at `path`."""
        *parents, name = named(path)
        with self.folder("/".join(parents)) as parent, as_tool_error(path):
            descriptor = os.open(name, _FILE, dir_fd=parent)
        try:
            _check_regular(descriptor, path)
            yield descriptor
        finally:
            os.close(descriptor)

    def replace(self, path: str, data: bytes) -> bool:
        """Write a file atomically; True if it replaced one."""
        *parents, name = named(path)
        with self.folder("/".join(parents), create=True) as parent, as_tool_error(path):
            mode = _mode_of(name, parent, path)
            temporary = f".{uuid4().hex}.tmp"
            descriptor = os.open(temporary, _NEW, mode or 0o666, dir_fd=parent)
            try:
                with os.fdopen(descriptor, "wb") as file:
                    file.write(data)
                # A link at this path is replaced, not followed.
                os.replace(temporary, name, src_dir_fd=parent, dst_dir_fd=parent)
            except BaseException:
                with suppress(FileNotFoundError):
                    os.unlink(temporary, dir_fd=parent)
                raise
        return mode is not None

    def _walk(self, steps: list[str], *, create: bool) -> int:
        descriptor = os.open(self._root, _FOLDER)
        try:
            for step in steps:
                if create:
                    with suppress(FileExistsError):
                        os.mkdir(step, dir_fd=descriptor)
                following = os.open(step, _FOLDER, dir_fd=descriptor)
                os.close(descriptor)
                descriptor = following
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor


def steps_of(path: str) -> list[str]:
    """The components of a relative path; "" and "." are the root."""
    if len(path) > MAX_PATH or path.count("/") > MAX_STEPS:
        raise ToolError(f"The path {path[:60]!r}… is too long.")
    if "\x00" in path or not path.isprintable():
        raise ToolError(f"The path {path[:60]!r} holds a character that no path may hold.")
    if path.startswith("/"):
        raise ToolError(f"The path {path!r} must be relative to the root.")
    steps = [step for step in path.split("/") if step not in ("", ".")]
    if ".." in steps:
        raise ToolError(f"The path {path!r} must not hold '..'.")
    return steps


def named(path: str) -> list[str]:
    """The components of a path below the root; ToolError for the root itself."""
    steps = steps_of(path)
    if not steps:
        raise ToolError("Name a file.")
    return steps


@contextmanager
def as_tool_error(path: str) -> Generator[None]:
    """Turn an OSError into a ToolError for the model, without paths outside the root."""
    try:
        yield
    except FileNotFoundError:
        raise ToolError(f"There is no {path or '.'}.") from None
    except IsADirectoryError:
        raise ToolError(f"{path} is a folder.") from None
    except OSError as error:
        # O_NOFOLLOW on a link raises ELOOP, or ENOTDIR if a folder was expected.
        reason = os.strerror(error.errno or 0)
        raise ToolError(f"{path} cannot be opened ({reason}); links are never followed.") from None


def _check_regular(descriptor: int, path: str) -> None:
    kind = os.fstat(descriptor).st_mode
    if stat.S_ISDIR(kind):
        raise ToolError(f"{path} is a folder.")
    if not stat.S_ISREG(kind):
        raise ToolError(f"{path} is no regular file.")


def _mode_of(name: str, parent: int, path: str) -> int | None:
    """The permissions of the file to replace; None if there is none."""
    try:
        mode = os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(mode):
        raise ToolError(f"{path} is there, and is no regular file.")
    return stat.S_IMODE(mode) & 0o777
