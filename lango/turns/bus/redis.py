"""The bus on Redis: publish and subscribe, no streams, since the database keeps what must last.

redis-py types its clients only in part: here they are `Any`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

from redis.asyncio import Redis

from lango.core.ids import new_id
from lango.turns.bus.connection import ANSWER_WITHIN, PING_EVERY, BusConnection, cancel_all
from lango.turns.bus.protocol import BusMessage, OnMessage

_FIRST: Final = "first"  # a connection reads only when it has subscribed to something
_LAST: Final = "last"
_SILENCES: Final = 3
"""Times PING_EVERY seconds of silence after which a connection counts as lost."""


class RedisBus(BusConnection[Any]):
    """Wake-ups and streamed text over Redis; each topic is a channel."""

    def __init__(self, url: str, namespace: str) -> None:
        super().__init__(url, namespace)
        self._id = new_id("prc").encode()
        self._sender: Any = None
        self._last_message_at = 0.0
        self._has_settled = asyncio.Event()

    @asynccontextmanager
    async def connected(self, on_message: OnMessage) -> AsyncGenerator[tuple[Any, asyncio.Event]]:
        """A connection that receives, and one that sends."""
        lost = asyncio.Event()
        # No limit for a read: a timer for each message would cost as much as the message.
        listener, sender = self._client(None), self._client(ANSWER_WITHIN)
        receiver = listener.pubsub()
        tasks: list[asyncio.Task[None]] = []
        try:
            await receiver.subscribe(self.channel(_FIRST))
            self._last_message_at = time.monotonic()
            for work in (self._receive(receiver, on_message), self._watch(receiver)):
                tasks.append(asyncio.create_task(work))
                tasks[-1].add_done_callback(lambda _: lost.set())
            self._sender = sender
            yield receiver, lost
        finally:
            self._sender = None
            await cancel_all(*tasks)
            for part in (receiver, listener, sender):
                with suppress(Exception):  # the connection may be lost already
                    await part.aclose()

    def _client(self, answer_within: float | None) -> Any:
        client: Any = Redis.from_url(  # pyright: ignore[reportUnknownMemberType]
            self.url, socket_connect_timeout=ANSWER_WITHIN, socket_timeout=answer_within
        )
        return client

    async def _receive(self, receiver: Any, on_message: OnMessage) -> None:
        """Pass on messages until the connection is lost."""
        async for message in receiver.listen():
            self._last_message_at = time.monotonic()
            self._handle(message, on_message)

    async def _watch(self, receiver: Any) -> None:
        """Ping a silent server; return if it stays silent."""
        while (silence := time.monotonic() - self._last_message_at) < _SILENCES * PING_EVERY:
            if silence >= PING_EVERY:
                await receiver.ping()
            await asyncio.sleep(PING_EVERY)

    def _handle(self, message: dict[str, Any], on_message: OnMessage) -> None:
        topic = bytes(message["channel"] or b"").decode().removeprefix(f"{self.namespace}.")
        if message["type"] == "subscribe" and topic == _LAST:
            self._has_settled.set()
        elif message["type"] == "message":
            sender, _, data = bytes(message["data"]).partition(b" ")
            if sender != self._id:
                on_message(topic, data)

    async def receive(self, client: Any, topic: str) -> None:
        """Subscribe to the channel of a topic."""
        await client.subscribe(self.channel(topic))

    async def settle(self, client: Any) -> None:
        """Wait until the server has made the subscriptions: it confirms each, in order."""
        self._has_settled.clear()
        await client.subscribe(self.channel(_LAST))
        await self._has_settled.wait()

    async def ignore(self, client: Any, topic: str) -> None:
        """Unsubscribe from the channel of a topic."""
        await client.unsubscribe(self.channel(topic))

    async def publish(self, messages: Sequence[BusMessage]) -> None:
        """Send messages in one round trip."""
        if self._sender is None:
            raise ConnectionError("There is no connection to Redis.")
        pipeline = self._sender.pipeline(transaction=False)
        for message in messages:
            pipeline.publish(self.channel(message.topic), self._id + b" " + message.data)
        await pipeline.execute()
