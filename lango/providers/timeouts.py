"""How long a model may take, and the clock that watches its stream."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from types import TracebackType


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Seconds; every one of them is always on.

    Models that think in silence may be quiet for minutes, so `idle` is generous.
    """

    connect: float = 10.0  # until the connection stands
    idle: float = 180.0  # without any news, before the first byte and between two
    total: float = 1_800.0  # from the request to the end of the answer


class Watch:
    """Bounds many short waits, one after the other: `with watch: await …` raises TimeoutError.

    Either each of them may take `idle` seconds, or all of them end at the `deadline`. Between the
    waits the clock stands still. `asyncio.timeout` would do, but it sets a timer for every wait,
    and a stream has thousands; this one looks, when its only timer goes off, whether the wait of
    that moment is too long.
    """

    __slots__ = ("_fired", "_handle", "_idle", "_loop", "_now", "_over", "_task")

    def __init__(self, *, idle: float | None = None, deadline: float = 0.0) -> None:
        self._loop = asyncio.get_running_loop()
        self._now = self._loop.time
        self._idle = idle
        self._over = deadline
        self._task: asyncio.Task[object] | None = None
        self._fired = False
        self._handle: asyncio.TimerHandle | None = None

    def __enter__(self) -> None:
        self._task = asyncio.current_task(self._loop)
        if self._idle is not None:
            self._over = self._now() + self._idle
        if self._handle is None:
            self._handle = self._loop.call_at(self._over, self._look)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        task, self._task = self._task, None
        if not self._fired or task is None:
            return
        self._fired = False
        # What is left after our own was taken back is someone else's wish to end the task.
        if not task.uncancel() and kind is asyncio.CancelledError:
            raise TimeoutError from error

    def hurry(self, idle: float) -> None:
        """Let each further wait take no longer than this."""
        if self._idle is not None and idle < self._idle:
            self._idle = idle
            self.close()

    def close(self) -> None:
        """Take the timer away."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _look(self) -> None:
        self._handle = None
        if self._task is None:
            return  # the next wait sets it again
        if self._now() < self._over:
            self._handle = self._loop.call_at(self._over, self._look)
        else:
            self._fired = True
            self._task.cancel()
