"""A process of our own, its output up to a cap, and nothing left of it afterwards."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final, cast

Limits = Mapping[int, int]
"""What a process may use, by the RLIMIT_… of the resource module."""

_PATIENCE: Final = 5.0
_CHUNK: Final = 64 * 1024


@asynccontextmanager
async def running(
    argv: Sequence[str],
    env: Mapping[str, str],
    *,
    folder: Path | None = None,
    pass_fds: Sequence[int] = (),
) -> AsyncGenerator[Process]:
    """A process that leads a group of its own, which is killed when the block ends."""
    process = await asyncio.create_subprocess_exec(
        *argv,
        env=dict(env),
        cwd=folder,
        stdin=DEVNULL,
        stdout=PIPE,
        stderr=PIPE,
        pass_fds=pass_fds,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        # Also when the leader has ended: what it left in the background goes with it.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        await _ended(process)


async def _ended(process: Process) -> None:
    """Wait for the end; asyncio sees it only when both outputs were read to theirs."""
    rest = Output(0)
    try:
        async with asyncio.timeout(_PATIENCE):
            await asyncio.gather(rest.follow(process.stdout), rest.follow(process.stderr))
            await process.wait()
    except TimeoutError:  # something left the group, and holds an output open
        cast(Any, process)._transport.close()


def set_limits(pid: int, limits: Limits) -> None:
    """Bound what a process may use, as far as it is not bound already."""
    for kind, wanted in limits.items():
        hard = resource.prlimit(pid, kind)[1]
        limit = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.prlimit(pid, kind, (limit, limit))


class Output:
    """The beginning of what a stream says; the rest is read and forgotten."""

    def __init__(self, cap: int) -> None:
        self._cap = cap
        self._kept = bytearray()
        self.truncated = False

    @property
    def text(self) -> str:
        """What was kept, as text."""
        return self._kept.decode("utf-8", "replace")

    async def follow(self, stream: asyncio.StreamReader | None) -> None:
        """Read to the end."""
        while stream is not None and (chunk := await stream.read(_CHUNK)):
            room = self._cap - len(self._kept)
            self._kept += chunk[:room]
            self.truncated = self.truncated or len(chunk) > room
