"""What a bus does: it carries short messages between the processes of one database.

A bus may lose any message. The database has everything that matters: a lost wake-up delays a poll,
and lost text is read from the turn's log.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, NoReturn, Protocol

OnMessage = Callable[[str, bytes], None]
"""Called with the topic and the data of each message from another process."""


class BusMessage(NamedTuple):
    """A message to all processes that subscribe to its topic; without data, only a wake-up."""

    topic: str
    data: bytes = b""


class Bus(Protocol):
    """Carries messages to other processes; a process does not receive its own."""

    @property
    def reaches_others(self) -> bool:
        """Whether it can reach other processes at all."""
        ...

    @property
    def carries_data(self) -> bool:
        """Whether messages arrive with their data; else subscribers look in the database."""
        ...

    @property
    def is_connected(self) -> bool:
        """Whether messages arrive at present, as far as is known."""
        ...

    async def listen(self, on_message: OnMessage, on_connect: Callable[[], None]) -> NoReturn:
        """Receive messages until cancelled; reconnect after each fault.

        Calls `on_connect` whenever it has connected: messages sent before are lost.
        """
        ...

    async def publish(self, messages: Sequence[BusMessage]) -> None:
        """Send messages, in order. Raises if they cannot be sent; some may have been sent."""
        ...

    def subscribe(self, topic: str) -> None:
        """Receive the messages of a topic from now on."""
        ...

    def unsubscribe(self, topic: str) -> None:
        """Unsubscribe from a topic."""
        ...
