"""Limits how many tasks resume per pass of the event loop, so that other tasks run in between.

Model answers, a server's new requests and a worker's new turns pass through one.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

PER_PASS: Final = 16
"""Tasks per pass of the event loop: each works for about a millisecond before it waits."""


class LoopThrottle:
    """Lets `per_pass` tasks through per pass of the loop; the others wait, in order."""

    def __init__(self, per_pass: int = PER_PASS) -> None:
        self._per_pass = per_pass
        self._free = per_pass  # of this pass
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def enter(self) -> None:
        """Wait for one's turn: not at all, unless many tasks enter in one pass."""
        loop = asyncio.get_running_loop()
        if self._free == self._per_pass:
            loop.call_soon(self._next_pass)
        if self._free:
            self._free -= 1
            return
        waiter: asyncio.Future[None] = loop.create_future()
        self._waiting.append(waiter)
        await waiter

    def _next_pass(self) -> None:
        self._free = self._per_pass
        while self._free and self._waiting:
            first = self._waiting.popleft()
            if not first.done():  # else its waiter was cancelled
                first.set_result(None)
                self._free -= 1
        if self._free < self._per_pass:
            asyncio.get_running_loop().call_soon(self._next_pass)
