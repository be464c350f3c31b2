"""A worker in its own process, controlled over a pipe."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import sys
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

from bench.turns.worker_context import BenchSettings, WorkerContext, worker_context
from lango.adk.apps.preload import warm_up
from lango.turns import event_loop

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable
    from multiprocessing.connection import Connection

PATIENCE: Final = 300.0
"""Seconds after which a run that does not move is given up."""
_CONTEXT: Final = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["bench.turns.process"])
_TICK: Final = 0.005
_POLL_EVERY: Final = 0.05

T = TypeVar("T")

Order = Literal["start", "stop", "open", "shut", "figures"]


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures that a worker process reports."""

    calls: int
    last_call: float
    last_effect: float
    worst_stall: float  # seconds of the loop's CPU since the start
    memory: float  # MB, resident
    cpu: float  # seconds


class WorkerProcess:
    """A process with a worker in it, which is not started."""

    def __init__(self, settings: BenchSettings) -> None:
        self._pipe, child_end = _CONTEXT.Pipe()
        self._process = _CONTEXT.Process(target=_serve, args=(settings, child_end), daemon=True)
        self._process.start()
        child_end.close()

    async def send(self, order: Order) -> Any:
        """Send an order; return its result."""
        return await asyncio.to_thread(self._send, order)

    async def figures(self) -> Figures:
        """The current figures of the worker."""
        return await self.send("figures")

    def _send(self, order: Order) -> Any:
        self._pipe.send(order)
        if not self._pipe.poll(PATIENCE):
            raise TimeoutError(f"The worker did not {order}.")
        return self._pipe.recv()

    def kill(self) -> None:
        """Kill it immediately."""
        self._process.kill()
        self._process.join(PATIENCE)
        self._pipe.close()


@asynccontextmanager
async def worker_process(
    settings: BenchSettings, *, start: bool = True
) -> AsyncGenerator[WorkerProcess]:
    """A worker process, killed at the end if that has not happened before."""
    made = WorkerProcess(settings)
    try:
        await made.send("start" if start else "figures")
        yield made
    finally:
        made.kill()


async def poll_until(read: Callable[[], Awaitable[T]], wanted: Callable[[T], bool]) -> T:
    """Poll another process until its state is as wanted; return that state."""
    async with asyncio.timeout(PATIENCE):
        while not wanted(found := await read()):  # noqa: ASYNC110 - no event to await
            await asyncio.sleep(_POLL_EVERY)
    return found


class StallWatch:
    """Records the most CPU that the loop's thread used between two ticks of the loop."""

    def __init__(self) -> None:
        self.worst = 0.0
        self._last = time.thread_time()
        self._loop = asyncio.get_running_loop()
        self._tick()

    def _tick(self) -> None:
        now = time.thread_time()
        self.worst = max(self.worst, now - self._last)
        self._last = now
        self._loop.call_later(_TICK, self._tick)


def _serve(settings: BenchSettings, pipe: Connection) -> None:
    event_loop.run(_serve_until_closed(settings, pipe))


async def _serve_until_closed(settings: BenchSettings, pipe: Connection) -> None:
    """Execute orders until the other end of the pipe is closed."""
    orders: asyncio.Queue[Order | None] = asyncio.Queue()

    def receive() -> None:
        try:
            orders.put_nowait(pipe.recv())
        except EOFError:
            orders.put_nowait(None)
            asyncio.get_running_loop().remove_reader(pipe.fileno())

    await warm_up()  # as `lango worker` and `lango serve` do
    watch = StallWatch()
    asyncio.get_running_loop().add_reader(pipe.fileno(), receive)
    async with worker_context(settings) as context:
        while order := await orders.get():
            pipe.send(await _execute(context, watch, order))


async def _execute(context: WorkerContext, watch: StallWatch, order: Order) -> Any:
    if order == "start":
        watch.worst = 0.0
        await context.store.database.open()
        await context.worker.start()
    elif order == "stop":
        await context.worker.stop()
        await context.store.database.close()  # the server has few connections, and others need them
    elif order == "open":
        context.notes.gate.set()
    elif order == "shut":
        context.notes.shut()
    else:
        return _figures(context, watch)
    return None


def _figures(context: WorkerContext, watch: StallWatch) -> Figures:
    notes = context.notes
    known = notes.calls, notes.last_call, notes.last_effect
    return Figures(*known, watch.worst, resident(), time.process_time())


def resident() -> float:
    """The memory of this process, MB."""
    if sys.platform != "linux":
        return float("nan")
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6
