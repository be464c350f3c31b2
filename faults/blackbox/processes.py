"""The processes of a fleet: the zygote starts them, and they are known by their ids alone."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any, Final

_ROOT: Final = Path(__file__).resolve().parents[2]
_PATIENCE: Final = 300.0


class Running:
    """One process."""

    def __init__(self, pid: int, log: Path) -> None:
        self.pid, self.log = pid, log
        self.ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal, if it still runs."""
        if not self.ended.done():
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    async def kill(self) -> None:
        """Kill it with SIGKILL."""
        self.signal(signal.SIGKILL)
        await asyncio.wait_for(asyncio.shield(self.ended), _PATIENCE)

    async def wait_for_log(self, text: str) -> str:
        """Wait until the log contains a text; return the log."""
        async with asyncio.timeout(_PATIENCE):
            while text not in (log_text := self.log.read_text("utf-8", "replace")):
                if self.ended.done():
                    raise RuntimeError(f"it ended with {self.ended.result()}: {log_text[-500:]}")
                await asyncio.sleep(0.02)
            return log_text


class Zygote:
    """Starts processes."""

    def __init__(self, process: asyncio.subprocess.Process, folder: Path) -> None:
        self._process, self._folder = process, folder
        self._numbers = count(1)
        self._requests: dict[int, asyncio.Future[Running]] = {}
        self._logs: dict[int, Path] = {}
        self._running: dict[int, Running] = {}

    async def listen(self) -> None:
        """Read the zygote's reports until it ends."""
        assert self._process.stdout is not None
        while line := await self._process.stdout.readline():
            report = json.loads(line)
            if "started" in report:
                running = Running(report["started"], self._logs[report["id"]])
                self._running[running.pid] = running
                self._requests.pop(report["id"]).set_result(running)
            elif "ended" in report:
                self._running.pop(report["ended"]).ended.set_result(report["code"])

    async def start(self, *argv: str, env: dict[str, str]) -> Running:
        """Start a `lango` process."""
        number = next(self._numbers)
        log = self._folder / f"{argv[0]}-{number}.log"
        log.touch()
        self._logs[number] = log
        self._requests[number] = asyncio.get_running_loop().create_future()
        request: dict[str, Any] = {"id": number, "argv": argv, "env": env, "log": str(log)}
        assert self._process.stdin is not None
        self._process.stdin.write(
            (json.dumps(request | {"folder": str(self._folder)}) + "\n").encode()
        )
        await self._process.stdin.drain()
        return await asyncio.wait_for(self._requests[number], _PATIENCE)


@asynccontextmanager
async def zygote(folder: Path) -> AsyncGenerator[Zygote]:
    """A zygote that is ready; its processes are killed with it."""
    environment = os.environ | {"PYTHONPATH": str(_ROOT), "NO_COLOR": "1", "COLUMNS": "200"}
    with (folder / "zygote.log").open("w") as log:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "faults.blackbox.zygote"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=log,
            env=environment,
            cwd=_ROOT,
        )
    assert process.stdin is not None
    assert process.stdout is not None
    ready = await asyncio.wait_for(process.stdout.readline(), _PATIENCE)
    if b"ready" not in ready:
        raise RuntimeError((folder / "zygote.log").read_text()[-500:])
    made = Zygote(process, folder)
    listening = asyncio.create_task(made.listen())
    try:
        yield made
    finally:
        process.stdin.close()
        await asyncio.wait_for(process.wait(), _PATIENCE)
        await listening
