"""Runs a child process, caps its output, and kills its process group afterwards."""

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
"""Resource limits by the RLIMIT_… constants of the resource module."""

_KILL_TIMEOUT: Final = 5.0
_CHUNK: Final = 64 * 1024


@asynccontextmanager
async def running(
    argv: Sequence[str],
    env: Mapping[str, str],
    *,
    folder: Path | None = None,
    pass_fds: Sequence[int] = (),
) -> AsyncGenerator[Process]:
    """A process in its own process group, which is killed when the block ends."""
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
        # Also when the leader has ended: this kills its background processes too.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        await _ended(process)


async def _ended(process: Process) -> None:
    """Wait for the end; asyncio detects it only after both outputs are read to their end."""
    output = Output(0)
    try:
        async with asyncio.timeout(_KILL_TIMEOUT):
            await asyncio.gather(output.follow(process.stdout), output.follow(process.stderr))
            await process.wait()
    except TimeoutError:  # a process that left the group holds an output open
        cast(Any, process)._transport.close()


def set_limits(pid: int, limits: Limits) -> None:
    """Set a process's resource limits, never above its existing hard limits."""
    for kind, requested in limits.items():
        hard = resource.prlimit(pid, kind)[1]
        limit = requested if hard == resource.RLIM_INFINITY else min(requested, hard)
        resource.prlimit(pid, kind, (limit, limit))


class Output:
    """The beginning of a stream; the rest is read and discarded."""

    def __init__(self, cap: int) -> None:
        self._cap = cap
        self._bytes = bytearray()
        self.truncated = False

    @property
    def text(self) -> str:
        """The kept bytes as text."""
        return self._bytes.decode("utf-8", "replace")

    async def follow(self, stream: asyncio.StreamReader | None) -> None:
        """Read the stream to its end."""
        while stream is not None and (chunk := await stream.read(_CHUNK)):
            room = self._cap - len(self._bytes)
            self._bytes += chunk[:room]
            self.truncated = self.truncated or len(chunk) > room
