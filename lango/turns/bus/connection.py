"""What buses with a server of their own share: connect, reconnect, subscribe."""

from __future__ import annotations

import asyncio
import logging
from abc import abstractmethod
from collections import deque
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, Generic, NoReturn, TypeVar

from lango.core.backoff import delays
from lango.turns.bus.protocol import OnMessage

logger = logging.getLogger(__name__)

ANSWER_WITHIN: Final = 5.0
"""Seconds that the server of a bus has to accept a connection or a message."""
PING_EVERY: Final = 10.0
"""Seconds of silence after which a connection is tested."""
_CANCEL_EVERY: Final = 1.0

C = TypeVar("C")


async def cancel_all(*tasks: asyncio.Task[Any]) -> None:
    """Cancel tasks until all are done: a client may swallow a cancellation while it connects."""
    while pending := [task for task in tasks if not task.done()]:
        for task in pending:
            task.cancel()
        await asyncio.wait(pending, timeout=_CANCEL_EVERY)
    await asyncio.gather(*tasks, return_exceptions=True)


class BusConnection(Generic[C]):
    """A connection to a bus that reconnects after each fault and restores its subscriptions."""

    reaches_others = True
    carries_data = True

    def __init__(self, url: str, namespace: str) -> None:
        self.url = url
        self.namespace = namespace
        self.client: C | None = None  # while connected
        self._topics: set[str] = set()
        self._changed: deque[str] = deque()  # topics that the connection does not know of
        self._has_connection = False
        self._has_changed = asyncio.Event()

    @property
    def is_connected(self) -> bool:
        """Whether it has a connection."""
        return self.client is not None

    def subscribe(self, topic: str) -> None:
        """Receive the messages of a topic from now on."""
        self._topics.add(topic)
        self._change(topic)

    def unsubscribe(self, topic: str) -> None:
        """Unsubscribe from a topic."""
        self._topics.discard(topic)
        self._change(topic)

    def _change(self, topic: str) -> None:
        if self._has_connection:  # a new one is made with the topics of that moment
            self._changed.append(topic)
            self._has_changed.set()

    def channel(self, topic: str) -> str:
        """The name of a topic on a server that other databases may share."""
        return f"{self.namespace}.{topic}"

    async def listen(self, on_message: OnMessage, on_connect: Callable[[], None]) -> NoReturn:
        """Receive messages until cancelled; reconnect after each fault."""
        while True:
            for wait in delays():
                try:
                    await self._listen_once(on_message, on_connect)
                    break  # it was connected: restart with short waits
                except Exception as error:  # noqa: BLE001 - retry after any fault
                    logger.info("The bus cannot be reached; retrying: %s", type(error).__name__)
                await asyncio.sleep(wait)

    async def probe(self) -> None:
        """Connect once and wait for an answer; raises if there is none."""
        async with asyncio.timeout(ANSWER_WITHIN), self.connected(_ignore) as (client, _):
            await self.settle(client)

    async def _listen_once(self, on_message: OnMessage, on_connect: Callable[[], None]) -> None:
        """Listen until the connection is lost; raises if there was none."""
        async with self.connected(on_message) as (client, lost):
            self._changed, self._has_connection = deque(self._topics), True
            try:
                async with asyncio.timeout(ANSWER_WITHIN):
                    await self._apply_changes(client)
                    await self.settle(client)
                await self._stay_connected(client, lost, on_connect)
            finally:
                self._has_connection = False
        logger.info("The connection to the bus is lost; reconnecting.")

    async def _stay_connected(
        self, client: C, lost: asyncio.Event, on_connect: Callable[[], None]
    ) -> None:
        self.client = client
        on_connect()
        following = asyncio.create_task(self._follow_changes(client))
        ended = asyncio.create_task(lost.wait())
        try:
            await asyncio.wait([following, ended], return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.client = None
            await cancel_all(following, ended)

    async def _follow_changes(self, client: C) -> NoReturn:
        while True:
            await self._has_changed.wait()
            self._has_changed.clear()
            await self._apply_changes(client)

    async def _apply_changes(self, client: C) -> None:
        while self._changed:
            topic = self._changed.popleft()
            if topic in self._topics:
                await self.receive(client, topic)
            else:
                await self.ignore(client, topic)

    @abstractmethod
    def connected(
        self, on_message: OnMessage
    ) -> AbstractAsyncContextManager[tuple[C, asyncio.Event]]:
        """A connection, and an event that is set when it is lost."""

    @abstractmethod
    async def receive(self, client: C, topic: str) -> None:
        """Subscribe to a topic on this connection; again is harmless."""

    @abstractmethod
    async def settle(self, client: C) -> None:
        """Wait until the server has made the subscriptions of this connection."""

    @abstractmethod
    async def ignore(self, client: C, topic: str) -> None:
        """Unsubscribe from a topic on this connection; again is harmless."""


def _ignore(topic: str, data: bytes) -> None:
    """Receive a message and do nothing."""
