"""Workers in processes of their own, to be killed, frozen and stopped."""

import asyncio
import logging
import multiprocessing
import os
import signal
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from functools import partial
from multiprocessing.synchronize import Event
from typing import Any

from faults.turn_agents import PATIENCE
from faults.turn_place import Place, process
from lango.core import failpoints

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["pytest", "faults.turn_warm"])


class WorkerProcess:
    """A process that does nothing but run turns."""

    def __init__(self, place: Place, options: dict[str, Any]) -> None:
        self._ready = _CONTEXT.Event()
        self._process = _CONTEXT.Process(
            target=_work, args=(place, options, self._ready), daemon=True
        )
        self._process.start()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    def wait_until_ready(self) -> None:
        assert self._ready.wait(PATIENCE)

    def send(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def kill(self) -> None:
        self._process.kill()
        self._process.join(PATIENCE)

    def join(self) -> int | None:
        self._process.join(PATIENCE)
        return self._process.exitcode


@contextmanager
def workers(place: Place, count: int = 1, **options: Any) -> Generator[list[WorkerProcess]]:
    """So many workers, each ready; those that still live are killed at the end."""
    with ExitStack() as ending:
        started: list[WorkerProcess] = []
        for _ in range(count):
            started.append(WorkerProcess(place, options))
            ending.callback(started[-1].kill)
        for each in started:
            each.wait_until_ready()
        yield started


def _work(place: Place, options: dict[str, Any], ready: Event) -> None:
    logging.basicConfig(filename=place.folder / f"worker-{os.getpid()}.log")
    failpoints.armed = partial(_die_at, options.pop("die_at", None))
    asyncio.run(_work_until_told(place, options, ready))


def _die_at(where: str | None, name: str) -> None:
    if name == where:
        os.kill(os.getpid(), signal.SIGKILL)


async def _work_until_told(place: Place, options: dict[str, Any], ready: Event) -> None:
    told = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, told.set)
    drain = options.pop("drain", 10.0)
    async with process(place, dead_after=options.pop("dead_after", 1.5)) as here:
        worker = here.worker(**options)
        await worker.start()
        ready.set()
        await told.wait()
        await worker.stop(drain)
