"""Bounded waits inside one process: for a connection, and for a session that others write to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final

from lango.core.tenants import FairSemaphore
from lango.errors import StoreBusyError
from lango.store.sessions.entries import SessionKey

PER_SESSION: Final = 2
"""Connections that the writers of one session use at a time: one works, the next is at the server.

More would wait there for the session's row, each with a connection that other sessions need.
"""


@asynccontextmanager
async def acquired(lock: FairSemaphore | asyncio.Semaphore, seconds: float) -> AsyncGenerator[None]:
    """Hold a semaphore inside; StoreBusyError if it is not free in time."""
    if lock.locked():  # a timer only for those that wait
        try:
            async with asyncio.timeout(seconds):
                await lock.acquire()
        except TimeoutError as error:
            raise StoreBusyError from error
    else:
        await lock.acquire()
    try:
        yield
    finally:
        lock.release()


class _Writers:
    """The writers of one session, in order of arrival."""

    def __init__(self) -> None:
        self.count = 0
        self.slots = asyncio.Semaphore(PER_SESSION)


class SessionQueues:
    """In-memory queues of writers: those that wait for a locked session use few connections."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._sessions: dict[SessionKey, _Writers] = {}

    @asynccontextmanager
    async def turn_of(self, session: SessionKey) -> AsyncGenerator[None]:
        """Inside, write to the session; StoreBusyError if earlier writers take too long."""
        writers = self._sessions.setdefault(session, _Writers())
        writers.count += 1
        try:
            async with acquired(writers.slots, self._seconds):
                yield
        finally:
            writers.count -= 1
            if not writers.count:
                del self._sessions[session]
