"""The timeouts of a model call, and the watch that enforces them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from types import TracebackType


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Timeouts in seconds; all of them always apply.

    Models may reason for minutes without output, so `idle` is long.
    """

    connect: float = 10.0  # until the connection is established
    idle: float = 180.0  # without data, before the first chunk and between chunks
    total: float = 1_800.0  # from the request to the end of the answer


class Watch:
    """Bounds many short waits, one after the other: `with watch: await …` raises TimeoutError.

    Either each wait may take `idle` seconds, or all of them end at the `deadline`. Time between the
    waits never raises. `asyncio.timeout` would set a timer for each of a stream's thousands of
    waits; this class has one timer, and checks the current wait when it fires. Two watches take
    1 to 2 µs of CPU for each chunk, two of `asyncio.timeout` 10 to 12, of the adapter's 30.
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
            self._handle = self._loop.call_at(self._over, self._check)

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
        # After our own cancellation is undone, any remaining one came from elsewhere.
        if not task.uncancel() and kind is asyncio.CancelledError:
            raise TimeoutError from error

    def shorten(self, idle: float) -> None:
        """Shorten the limit of each further wait."""
        if self._idle is not None and idle < self._idle:
            self._idle = idle
            self.close()

    def close(self) -> None:
        """Cancel the timer."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _check(self) -> None:
        self._handle = None
        if self._task is None:
            return  # the next wait sets it again
        if self._now() < self._over:
            self._handle = self._loop.call_at(self._over, self._check)
        else:
            self._fired = True
            self._task.cancel()
