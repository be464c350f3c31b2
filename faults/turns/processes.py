"""Worker processes that a test kills, freezes and stops."""

import asyncio
import logging
import multiprocessing
import os
import signal
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from functools import partial
from multiprocessing.synchronize import Event
from typing import Any, Self

from faults.turns.agents import PATIENCE
from faults.turns.place import Place, process
from lango.core import failpoints
from lango.turns import event_loop

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["pytest", "faults.turns.warm"])


Job = Callable[[Place, dict[str, Any], Event], None]
"""The job of a process: it sets the event once it has begun."""


class WorkerProcess:
    """A process that runs turns, unless it gets another job."""

    def __init__(self, place: Place, options: dict[str, Any], job: Job | None = None) -> None:
        self._ready = CONTEXT.Event()
        self._process = CONTEXT.Process(
            target=job or work, args=(place, options, self._ready), daemon=True
        )
        self._process.start()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        return self._process.is_alive()

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


class Crew:
    """Some processes with the same job, each replaced when it is killed; all killed at the end."""

    def __init__(self, place: Place, count: int, *, job: Job | None = None, **options: Any) -> None:
        self.members: list[WorkerProcess] = []
        self.place, self._count, self._job, self._options = place, count, job, options

    async def __aenter__(self) -> Self:
        for _ in range(self._count):
            await asyncio.to_thread(self.hire)  # the first one waits for the fork server
        for each in self.members:
            await asyncio.to_thread(each.wait_until_ready)
        return self

    async def __aexit__(self, *_: object) -> None:
        while self.members:
            await asyncio.to_thread(self.members.pop().kill)

    def hire(self) -> None:
        """Start one more, without waiting for it."""
        self.members.append(WorkerProcess(self.place, dict(self._options), self._job))

    async def replace(self, number: int) -> None:
        """Kill one, and start another in its place."""
        doomed = self.members.pop(number)
        self.hire()
        await asyncio.to_thread(doomed.kill)

    async def mend(self) -> int:
        """Replace those that died by themselves; return their number."""
        dead = [each for each in self.members if not each.is_alive]
        for each in dead:
            self.members.remove(each)
            self.hire()
            await asyncio.to_thread(each.kill)
        return len(dead)


@contextmanager
def workers(place: Place, count: int = 1, **options: Any) -> Generator[list[WorkerProcess]]:
    """Start this many workers, and wait until they are ready; survivors are killed at the end."""
    with ExitStack() as ending:
        started: list[WorkerProcess] = []
        for _ in range(count):
            started.append(WorkerProcess(place, options))
            ending.callback(started[-1].kill)
        for each in started:
            each.wait_until_ready()
        yield started


def keep_log(place: Place) -> None:
    """Let this process log into a file of its own."""
    logging.basicConfig(filename=place.folder / f"worker-{os.getpid()}.log")


def work(place: Place, options: dict[str, Any], ready: Event) -> None:
    """The default job of a process: run turns until SIGTERM."""
    keep_log(place)
    failpoints.armed = partial(_die_at, options.pop("die_at", None))
    event_loop.run(_work_until_stopped(place, options, ready))


def _die_at(where: str | None, name: str) -> None:
    if name == where:
        os.kill(os.getpid(), signal.SIGKILL)


async def _work_until_stopped(place: Place, options: dict[str, Any], ready: Event) -> None:
    stop_requested = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop_requested.set)
    drain = options.pop("drain", 10.0)
    async with process(place, dead_after=options.pop("dead_after", 1.5)) as here:
        worker = here.worker(**options)
        await worker.start()
        ready.set()
        await stop_requested.wait()
        await worker.stop(drain)
