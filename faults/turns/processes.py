"""Worker processes that a test kills, freezes and stops."""

import asyncio
import logging
import multiprocessing
import os
import signal
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any, Literal, Self

from faults.turns.agents import PATIENCE
from faults.turns.workspace import Workspace, turn_process
from lango.core import failpoints
from lango.turns import event_loop
from lango.turns.worker import TurnWorker

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["pytest", "faults.turns.warm"])


Job = Callable[[Workspace, dict[str, Any], Event], None]
"""The job of a process: it sets the event once it has begun."""


class WorkerProcess:
    """A process that runs turns, unless it gets another job."""

    def __init__(
        self, workspace: Workspace, options: dict[str, Any], job: Job | None = None
    ) -> None:
        self._workspace = workspace
        self._ready = CONTEXT.Event()
        self._process = CONTEXT.Process(
            target=job or work, args=(workspace, options, self._ready), daemon=True
        )
        self._process.start()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        return self._process.is_alive()

    @property
    def is_struck(self) -> bool:
        """Whether it has reached its strike."""
        return _was_struck(self._workspace, self.pid).exists()

    def wait_until_ready(self) -> None:
        assert self._ready.wait(PATIENCE)

    def send(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    async def stop(self) -> None:
        """Ask it to stop, and wait until it claims no more turns; those it has may still run."""
        self.send(signal.SIGTERM)
        async with asyncio.timeout(PATIENCE):
            while not _stops(self._workspace, self.pid).exists():  # noqa: ASYNC110 - of a process
                await asyncio.sleep(0.005)

    def kill(self) -> None:
        self._process.kill()
        self._process.join(PATIENCE)

    def join(self) -> int | None:
        self._process.join(PATIENCE)
        return self._process.exitcode


class Crew:
    """Some processes with the same job, each replaced when it is killed; all killed at the end."""

    def __init__(
        self, workspace: Workspace, count: int, *, job: Job | None = None, **options: Any
    ) -> None:
        self.members: list[WorkerProcess] = []
        self.workspace, self._count, self._job, self._options = workspace, count, job, options

    async def __aenter__(self) -> Self:
        for _ in range(self._count):
            await asyncio.to_thread(self.hire)  # the first one waits for the fork server
        for each in self.members:
            await asyncio.to_thread(each.wait_until_ready)
        return self

    async def __aexit__(self, *_: object) -> None:
        while self.members:
            await asyncio.to_thread(self.members.pop().kill)

    def hire(self, **options: Any) -> None:
        """Start one more, without waiting for it; `options` are its own."""
        self.members.append(WorkerProcess(self.workspace, {**self._options, **options}, self._job))

    async def replace(self, number: int, **options: Any) -> None:
        """Kill one, and start another in its place."""
        doomed = self.members.pop(number)
        self.hire(**options)
        await asyncio.to_thread(doomed.kill)

    async def dismiss(self) -> None:
        """Send SIGTERM to all, and wait until they have ended: nothing is written after that."""
        for each in self.members:
            with suppress(ProcessLookupError):  # it has died by itself
                each.send(signal.SIGTERM)
        for each in self.members:
            await asyncio.to_thread(each.join)

    async def mend(self) -> int:
        """Replace those that died by themselves; return their number."""
        dead = [each for each in self.members if not each.is_alive]
        for each in dead:
            self.members.remove(each)
            self.hire()
            await asyncio.to_thread(each.kill)
        return len(dead)


@contextmanager
def workers(workspace: Workspace, count: int = 1, **options: Any) -> Generator[list[WorkerProcess]]:
    """Start this many workers, and wait until they are ready; survivors are killed at the end."""
    with ExitStack() as ending:
        started: list[WorkerProcess] = []
        for _ in range(count):
            started.append(WorkerProcess(workspace, options))
            ending.callback(started[-1].kill)
        for each in started:
            each.wait_until_ready()
        yield started


@dataclass(frozen=True, slots=True)
class Strike:
    """A process kills or freezes itself when it passes a failpoint for the n-th time."""

    point: str
    times: int = 1
    mode: Literal["kill", "freeze"] = "kill"

    def armed(self, workspace: Workspace) -> Callable[[str], None]:
        """The hook of the failpoints, for one process."""
        passed = 0

        def strike(name: str) -> None:
            nonlocal passed
            passed += name == self.point
            if name == self.point and passed == self.times:
                _was_struck(workspace, os.getpid()).touch()
                os.kill(os.getpid(), signal.SIGKILL if self.mode == "kill" else signal.SIGSTOP)

        return strike


def keep_log(workspace: Workspace) -> None:
    """Let this process log into a file of its own."""
    logging.basicConfig(filename=workspace.folder / f"worker-{os.getpid()}.log")


def work(workspace: Workspace, options: dict[str, Any], ready: Event) -> None:
    """The default job of a process: run turns until SIGTERM."""
    keep_log(workspace)
    arm(workspace, options)
    event_loop.run(_work_until_stopped(workspace, options, ready))


def arm(workspace: Workspace, options: dict[str, Any]) -> None:
    """Arm the strike that the options of this process have, if they have one."""
    strike: Strike | None = options.pop("strike", None)
    failpoints.armed = strike and strike.armed(workspace)


async def _work_until_stopped(workspace: Workspace, options: dict[str, Any], ready: Event) -> None:
    drain = options.pop("drain", 10.0)
    async with turn_process(workspace, dead_after=options.pop("dead_after", 1.5)) as process:
        note_stop = _stops(workspace, os.getpid()).touch
        await run_until_stopped(process.worker(**options), ready, drain, note_stop)


async def run_until_stopped(
    worker: TurnWorker, ready: Event, drain: float, on_stop: Callable[[], None] = lambda: None
) -> None:
    """Run turns until SIGTERM; `on_stop` is called when the worker claims no more of them."""
    stop_requested = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop_requested.set)
    await worker.start()
    ready.set()
    await stop_requested.wait()
    stopping = asyncio.create_task(worker.stop(drain))
    await asyncio.sleep(0)  # it claims no more
    on_stop()
    await stopping


def _was_struck(workspace: Workspace, pid: int) -> Path:
    """The file that says that a process has reached its strike."""
    return workspace.folder / f"struck-{pid}"


def _stops(workspace: Workspace, pid: int) -> Path:
    """The file that says that a process is stopping."""
    return workspace.folder / f"stops-{pid}"
