"""A server process, and its figures by the operating system."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bench.server.http_client import Request, ask

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping, Sequence

SCRIPTS: Final = Path(sys.executable).parent
"""Where the commands of this environment are."""
ROOT: Final = Path(__file__).parents[2]
_LOOK_EVERY: Final = 0.1
_TO_START: Final = 300.0
_TICKS: Final = os.sysconf("SC_CLK_TCK")


def cpu_of(pid: int) -> float:
    """The CPU seconds that a process has used; 0 if it is gone."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    fields = stat.rpartition(")")[2].split()  # the name before it may contain spaces
    return (int(fields[11]) + int(fields[12])) / _TICKS


def peak_memory(pid: int) -> float:
    """The most memory that a process has held, MB."""
    return _memory(pid, "VmHWM")


def memory(pid: int) -> float:
    """The memory that a process holds, MB."""
    return _memory(pid, "VmRSS")


def _memory(pid: int, name: str) -> float:
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    return int(status.partition(f"{name}:")[2].split()[0]) * 1024 / 1e6


@dataclass(frozen=True, slots=True)
class Server:
    """A server that answers."""

    base: str
    pid: int
    output: Path

    @property
    def cpu(self) -> float:
        """The CPU seconds it has used."""
        return cpu_of(self.pid)


def free_port() -> int:
    """A free TCP port."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


@asynccontextmanager
async def server_process(
    command: Sequence[str],
    folder: Path,
    port: int,
    ready: str,
    environment: Mapping[str, str] | None = None,
) -> AsyncGenerator[Server]:
    """A server that answers at the path `ready`; killed at the end."""
    output = folder / f"{Path(command[0]).name}-{port}.out"
    # Compiled modules are kept, as in production: ADK imports some of them again in every turn.
    ours = {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "", **(environment or {})}
    with output.open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *command, cwd=folder, env={**os.environ, **ours}, stdout=log, stderr=log
        )
    server = Server(f"http://127.0.0.1:{port}", process.pid, output)
    try:
        await _answers(server, process, ready)
        yield server
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def _answers(server: Server, process: asyncio.subprocess.Process, ready: str) -> None:
    async with asyncio.timeout(_TO_START):
        while True:
            if process.returncode is not None:
                raise RuntimeError(server.output.read_text(encoding="utf-8"))
            try:
                if (await ask(server.base, Request(ready))).status == 200:
                    return
            except OSError:
                pass
            await asyncio.sleep(_LOOK_EVERY)
