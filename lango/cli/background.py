"""An event loop in its own thread: it keeps running while a person types or reads."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Self, TypeVar

from lango.turns.event_loop import end_tasks

T = TypeVar("T")


class Background:
    """Runs coroutines while this thread waits for them and receives Ctrl-C."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="lango", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        if not self.run(end_tasks()):
            return  # the thread of the remaining tasks is a daemon: it ends with the process
        self.run(_shut_down())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def run(
        self, work: Coroutine[Any, Any, T], *, interrupted: Callable[[], None] | None = None
    ) -> T:
        """The result. The first Ctrl-C calls `interrupted`, if given; otherwise Ctrl-C cancels."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except KeyboardInterrupt:
            if interrupted is None:
                future.cancel()
                raise
        self._loop.call_soon_threadsafe(interrupted)
        try:
            return future.result()
        except KeyboardInterrupt:
            future.cancel()
            raise


async def _shut_down() -> None:
    """Close what the loop still holds, as `asyncio.run` does."""
    loop = asyncio.get_running_loop()
    await loop.shutdown_asyncgens()
    await loop.shutdown_default_executor()
