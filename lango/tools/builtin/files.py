"""The built-in tools `files`: read, list and find under one root, and write where allowed."""

from __future__ import annotations

import codecs
import os
import stat
from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Annotated, Any, Final

from pydantic import Field

from lango.core.values import JsonObject
from lango.errors import ToolError
from lango.tools.base import Tool
from lango.tools.builtin.rooted import Rooted, as_tool_error, steps_of
from lango.tools.function import tool
from lango.tools.options import Options, Root

MAX_VISITED: Final = 50_000
"""Files that one search visits."""
MAX_SEARCHED: Final = 1024 * 1024
"""Bytes of a file that are searched for a text."""

Path = Annotated[str, Field(description="A path relative to the root, with / between names.")]


class FilesOptions(Options):
    """The tools' options."""

    root: Root
    write: bool = False
    max_read: int = Field(default=64 * 1024, ge=1)
    """Bytes that one call reads; a longer file is read in pieces."""
    max_write: int = Field(default=1024 * 1024, ge=1)
    max_entries: int = Field(default=500, ge=1)
    """Names that one call lists or finds."""


def files_tools(options: FilesOptions) -> list[Tool]:
    """The tools `read_file`, `list_files`, `find_files` and, where allowed, `write_file`."""
    files = Files(options)
    functions: list[Any] = [files.read_file, files.list_files, files.find_files]
    tools: list[Tool] = [tool(idempotent=True)(function) for function in functions]
    if options.write:
        tools.append(tool(idempotent=True)(files.write_file))
    return tools


class Files:
    """The files of one root."""

    def __init__(self, options: FilesOptions) -> None:
        self._options = options
        self._files = Rooted(options.root)

    def read_file(
        self,
        path: Path,
        offset: Annotated[int, Field(ge=0, description="The byte to begin at.")] = 0,
    ) -> JsonObject:
        """Read a text file; a long one in pieces, each from the `next_offset` of the last."""
        with self._files.reading(path) as descriptor:
            size = os.fstat(descriptor).st_size
            data = os.pread(descriptor, self._options.max_read, offset)
        if b"\x00" in data:
            raise ToolError(f"{path} is no text.")
        end = offset + len(data) >= size
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        result: JsonObject = {"text": decoder.decode(data, final=end), "size": size}
        if not end:  # a character cut in two belongs to the next piece
            result["next_offset"] = offset + len(data) - len(decoder.getstate()[0])
        return result

    def write_file(self, path: Path, text: str) -> JsonObject:
        """Write a text file whole, with the folders it needs; an old one is replaced."""
        data = text.encode("utf-8", "replace")
        if len(data) > self._options.max_write:
            raise ToolError(
                f"The text has {len(data)} bytes; {self._options.max_write} may be written."
            )
        replaced = self._files.replace(path, data)
        return {"path": path, "size": len(data), "replaced": replaced}

    def list_files(self, path: Path = "") -> JsonObject:
        """List a folder: folders end with /, links with @ (and are never followed)."""
        with (
            self._files.folder(path) as descriptor,
            as_tool_error(path),
            os.scandir(descriptor) as entries,
        ):
            names = sorted(map(_marked, entries))
        return self._cut(names)

    def find_files(
        self,
        pattern: Annotated[
            str, Field(max_length=200, description="For names, such as *.py; with a / for paths.")
        ] = "*",
        path: Path = "",
        containing: Annotated[str, Field(description="A text that the file must hold.")] = "",
    ) -> JsonObject:
        """Find files below a folder by name, and by a text in them."""
        matches: list[str] = []
        for visited, (name, parent, entry) in enumerate(self._below(path)):
            if visited >= MAX_VISITED or len(matches) > self._options.max_entries:
                return self._cut(sorted(matches)) | {"truncated": True}
            if fnmatchcase(name if "/" in pattern else entry, pattern) and (
                not containing or self._holds(entry, parent, containing)
            ):
                matches.append(name)
        return self._cut(sorted(matches))

    def _below(self, path: str) -> Iterator[tuple[str, int, str]]:
        """Each file's path from the root, its folder's descriptor, and its name."""
        base = "/".join(steps_of(path))
        with self._files.folder(path) as descriptor:
            walk = os.fwalk(".", dir_fd=descriptor, follow_symlinks=False)
            for folder, _, names, parent in walk:
                parts = [*filter(None, (base, folder.removeprefix(".").removeprefix("/")))]
                for name in names:
                    yield "/".join([*parts, name]), parent, name

    def _holds(self, name: str, parent: int, text: str) -> bool:
        """Whether a file contains the text."""
        try:
            descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=parent)
        except OSError:
            return False
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return False
            return text.encode("utf-8", "replace") in file.read(MAX_SEARCHED)

    def _cut(self, names: list[str]) -> JsonObject:
        limit = self._options.max_entries
        result: JsonObject = {"files": names[:limit]}
        return result | {"truncated": True} if len(names) > limit else result


def _marked(entry: os.DirEntry[str]) -> str:
    if entry.is_symlink():
        return f"{entry.name}@"
    return f"{entry.name}/" if entry.is_dir(follow_symlinks=False) else entry.name
