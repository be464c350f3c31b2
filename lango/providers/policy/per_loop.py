"""One object per event loop: connections and semaphores belong to their loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar
from weakref import WeakKeyDictionary

T = TypeVar("T")


class PerLoop(Generic[T]):
    """Creates an object on a loop's first use, and drops it with the loop."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._things: WeakKeyDictionary[asyncio.AbstractEventLoop, T] = WeakKeyDictionary()

    def get(self) -> T:
        """The running loop's object."""
        loop = asyncio.get_running_loop()
        thing = self._things.get(loop)
        if thing is None:
            thing = self._things[loop] = self._make()
        return thing

    async def in_thread(self) -> T:
        """The running loop's object; if there is none, it is created in a thread."""
        loop = asyncio.get_running_loop()
        thing = self._things.get(loop)
        if thing is None:
            created = await asyncio.to_thread(self._make)
            thing = self._things.setdefault(loop, created)
        return thing

    def pop(self) -> T | None:
        """Remove and return the running loop's object, if there is one."""
        return self._things.pop(asyncio.get_running_loop(), None)
