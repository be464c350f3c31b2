"""Logs a server's standard error, line by line."""

from __future__ import annotations

import asyncio
import logging
import os
from typing import Final

logger = logging.getLogger(__name__)

_CHUNK: Final = 65_536
_MAX_LINE: Final = 8_192


class LogPipe:
    """A pipe that child processes write to; its lines are logged as they arrive.

    It opens when the first process gets its end, and stays open for later ones.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._ends: tuple[int, int] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._partial_line = b""

    def fileno(self) -> int:
        """The write end."""
        if self._ends is None:
            self._ends = os.pipe()
            os.set_blocking(self._ends[0], False)
        # Added again for every process: the previous one may have run in another loop.
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._ends[0], self._read)
        return self._ends[1]

    def close(self) -> None:
        """Log the rest and close the pipe."""
        if self._ends is None:
            return
        self._read()
        self._log(self._partial_line)
        if self._loop is not None and not self._loop.is_closed():
            self._loop.remove_reader(self._ends[0])
        for end in self._ends:
            os.close(end)
        self._ends, self._loop, self._partial_line = None, None, b""

    def _read(self) -> None:
        if self._ends is None:
            return
        try:
            data = os.read(self._ends[0], _CHUNK)
        except BlockingIOError:
            return
        *lines, self._partial_line = (self._partial_line + data).split(b"\n")
        for line in lines:
            self._log(line)
        if len(self._partial_line) > _MAX_LINE:
            self._log(self._partial_line)
            self._partial_line = b""

    def _log(self, line: bytes) -> None:
        text = line[:_MAX_LINE].decode("utf-8", "replace").rstrip()
        if text:
            logger.info("MCP server %r: %s", self._name, text)
