"""The bus that needs nothing but the database: PostgreSQL's notifications.

Each of them reaches every process, whatever it subscribes to, and has room for topics only. SQLite
has none: its processes poll.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NoReturn

from lango.core.ids import new_id
from lango.store.db.database import Database
from lango.store.db.listen import MAX_BYTES, Notices
from lango.turns.bus.protocol import BusMessage, OnMessage


class DatabaseBus:
    """Wake-ups by LISTEN and NOTIFY; one notification carries many topics."""

    carries_data = False
    is_connected = True

    def __init__(self, database: Database) -> None:
        self.reaches_others = database.can_listen
        self._notices = Notices(database)
        self._id = new_id("prc")

    async def listen(self, on_message: OnMessage, on_connect: Callable[[], None]) -> NoReturn:
        """Listen until cancelled, on a connection of its own."""

        def received(text: str) -> None:
            sender, *topics = text.split(" ")
            if sender != self._id:
                for topic in topics:
                    on_message(topic, b"")

        await self._notices.listen(received, on_connect)

    async def publish(self, messages: Sequence[BusMessage]) -> None:
        """Send each topic once, in as few notifications as possible."""
        text = self._id
        for topic in dict.fromkeys(message.topic for message in messages):
            if len(text) + len(topic) >= MAX_BYTES:
                await self._notices.send(text)
                text = self._id
            text += f" {topic}"
        if messages:
            await self._notices.send(text)

    def subscribe(self, topic: str) -> None:
        """Do nothing: every notification arrives."""

    def unsubscribe(self, topic: str) -> None:
        """Do nothing: every notification arrives."""
