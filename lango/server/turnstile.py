"""Requests begin a few at a time, however many come at once: others have their turn between."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

from starlette.types import ASGIApp, Receive, Scope, Send

AT_ONCE: Final = 16
"""What comes in by one pass of the event loop: each is a millisecond of work, until it waits."""


class Turnstile:
    """Lets so many requests begin in one pass of the loop; the others wait in order."""

    def __init__(self, app: ASGIApp, at_once: int = AT_ONCE) -> None:
        self._app = app
        self._at_once = at_once
        self._left = at_once  # of this pass
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on when it is its turn."""
        await self._enter()
        await self._app(scope, receive, send)

    async def _enter(self) -> None:
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
