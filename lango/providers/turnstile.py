"""A few at a time, however many are ready at once: others have their turn between.

Answers of models come in through one, requests of a server and the turns of a worker begin so.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

AT_ONCE: Final = 16
"""What one pass of the event loop lets through: each is a millisecond of work, until it waits."""


class Turnstile:
    """Lets so many tasks through in one pass of the loop; the others wait, in order."""

    def __init__(self, at_once: int = AT_ONCE) -> None:
        self._at_once = at_once
        self._left = at_once  # of this pass
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def enter(self) -> None:
        """Go through when it is one's turn: at once, unless there is a crowd."""
        loop = asyncio.get_running_loop()
        if self._left == self._at_once:
            loop.call_soon(self._next_pass)
        if self._left:
            self._left -= 1
            return
        mine: asyncio.Future[None] = loop.create_future()
        self._waiting.append(mine)
        await mine

    def _next_pass(self) -> None:
        self._left = self._at_once
        while self._left and self._waiting:
            first = self._waiting.popleft()
            if not first.done():  # else whoever waited has gone
                first.set_result(None)
                self._left -= 1
        if self._left < self._at_once:
            asyncio.get_running_loop().call_soon(self._next_pass)
