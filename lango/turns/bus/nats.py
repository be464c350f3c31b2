"""The bus on NATS: core messages, no JetStream, since the database keeps what must not be lost."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Final

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription as NatsSubscription

from lango.turns.bus.connection import ANSWER_WITHIN, PING_EVERY, BusConnection, cancel_all
from lango.turns.bus.protocol import BusMessage, OnMessage

logger = logging.getLogger(__name__)

_CHECK_EVERY: Final = 0.5
"""Seconds between two checks whether the client has given up its connection."""


class _Connection(Client):
    """A connection with its subscriptions, by topic."""

    def __init__(self, on_message: OnMessage) -> None:
        super().__init__()
        self.on_message = on_message
        self.subscriptions: dict[str, NatsSubscription] = {}


class NatsBus(BusConnection[_Connection]):
    """Wake-ups and streamed text over NATS; each topic is a subject."""

    @asynccontextmanager
    async def connected(
        self, on_message: OnMessage
    ) -> AsyncGenerator[tuple[_Connection, asyncio.Event]]:
        """A connection; this class reconnects, not the client, so that readers learn of the gap."""
        client, lost = _Connection(on_message), asyncio.Event()

        async def closed() -> None:
            lost.set()

        async def failed(error: Exception) -> None:
            logger.info("NATS reports: %s", type(error).__name__)

        async with asyncio.timeout(ANSWER_WITHIN):
            await client.connect(
                self.url,
                name="lango",
                no_echo=True,
                allow_reconnect=False,
                connect_timeout=int(ANSWER_WITHIN),
                ping_interval=int(PING_EVERY),
                closed_cb=closed,
                disconnected_cb=closed,
                error_cb=failed,
            )
        watching = asyncio.create_task(_watch(client, lost))
        try:
            yield client, lost
        finally:
            await cancel_all(watching)
            with suppress(Exception):  # it may be closed already, or hang as below
                async with asyncio.timeout(ANSWER_WITHIN):
                    await client.close()

    async def receive(self, client: _Connection, topic: str) -> None:
        """Subscribe to the subject of a topic."""
        if topic in client.subscriptions:
            return

        async def received(message: Msg) -> None:
            client.on_message(topic, message.data)

        subscribed = client.subscribe(self.channel(topic), cb=received)  # pyright: ignore[reportUnknownMemberType]
        client.subscriptions[topic] = await subscribed

    async def settle(self, client: _Connection) -> None:
        """Wait until the server has made the subscriptions."""
        # The client writes a ping at once, and subscriptions that it has gathered a little later.
        await client.flush()
        await client.flush()

    async def ignore(self, client: _Connection, topic: str) -> None:
        """Unsubscribe from the subject of a topic."""
        if (subscription := client.subscriptions.pop(topic, None)) is not None:
            await subscription.unsubscribe()

    async def publish(self, messages: Sequence[BusMessage]) -> None:
        """Send messages; the client writes them to its connection together."""
        if self.client is None:
            raise ConnectionError("There is no connection to NATS.")
        for message in messages:
            await self.client.publish(self.channel(message.topic), message.data)


async def _watch(client: Client, lost: asyncio.Event) -> None:
    """Set `lost` when the client is closed.

    A client with unsent messages first tries to send them. If that fails, it calls no callback; it
    never ends if the server does not read.
    """
    while not client.is_closed:  # noqa: ASYNC110 - the client has no event for this
        await asyncio.sleep(_CHECK_EVERY)
    lost.set()
