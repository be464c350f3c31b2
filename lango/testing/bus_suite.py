"""A conformance suite for buses.

    from lango.testing.bus_suite import checks

    @pytest.mark.parametrize("check", checks(), ids=lambda check: check.__name__)
    async def test_conformance(check):
        await check(lambda namespace: MyBus(url, namespace))

The factory makes a bus of a namespace, as a process of its own would have it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Final
from uuid import uuid4

from lango.testing.checks import ConformanceError
from lango.turns.bus.protocol import Bus, BusMessage

BusFactory = Callable[[str], Bus]
BusCheck = Callable[[BusFactory], Awaitable[None]]

_SOON: Final = 30.0
_AGAIN: Final = 0.1


class Member:
    """A process on the bus: what it has received, and how often it has connected."""

    def __init__(self, bus: Bus, *topics: str) -> None:
        self.bus = bus
        self.joins = 0
        self.received: list[BusMessage] = []
        self._news = asyncio.Event()
        for topic in topics:
            bus.subscribe(topic)

    def on_message(self, topic: str, data: bytes) -> None:
        """Take note of a message."""
        self.received.append(BusMessage(topic, data))
        self._news.set()

    def on_connect(self) -> None:
        """Take note of a connection."""
        self.joins += 1
        self._news.set()

    async def until(self, is_there: Callable[[], bool], problem: str) -> None:
        """Wait for something that messages or connections bring about."""
        try:
            async with asyncio.timeout(_SOON):
                while not is_there():
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            raise ConformanceError(f"{problem}; received: {self.received}") from None

    def data_of(self, topic: str) -> list[bytes]:
        """The data received on a topic, in order."""
        return [message.data for message in self.received if message.topic == topic]


@asynccontextmanager
async def on(bus: Bus, *topics: str) -> AsyncGenerator[Member]:
    """A member that subscribes to topics and is connected."""
    member = Member(bus, *topics)
    listening = asyncio.create_task(bus.listen(member.on_message, member.on_connect))
    try:
        await member.until(lambda: member.joins > 0, "It does not connect")
        yield member
    finally:
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)


async def _insist(sender: Member, receiver: Member, topic: str) -> None:
    """Publish until a message arrives: a subscription may take a moment."""
    for _ in range(int(_SOON / _AGAIN)):
        await sender.bus.publish([BusMessage(topic)])
        await asyncio.sleep(_AGAIN)
        if receiver.data_of(topic):
            return
    raise ConformanceError(f"A message on {topic} does not arrive.")


async def messages_reach_other_processes(make: BusFactory) -> None:
    """A message arrives in every other process that subscribes, and not in its sender."""
    name = _namespace()
    async with (
        on(make(name), "work") as here,
        on(make(name), "work") as there,
        on(make(name), "work") as elsewhere,
    ):
        await here.bus.publish([BusMessage("work")])
        for other in (there, elsewhere):
            await other.until(lambda other=other: bool(other.received), "It does not arrive")
        await there.bus.publish([BusMessage("work")])
        await here.until(lambda: bool(here.received), "It does not arrive")
        if len(here.received) != 1 or len(there.received) != 1:
            raise ConformanceError("A process receives its own messages.")


async def messages_keep_their_order_and_data(make: BusFactory) -> None:
    """Messages of one sender arrive in order, with their bytes if the bus carries data."""
    name = _namespace()
    async with on(make(name), "turn") as here, on(make(name), "turn") as there:
        data = [f"{number} \x00\u2028é".encode() for number in range(200)]
        await here.bus.publish([BusMessage("turn", payload) for payload in data])
        count = len(data) if here.bus.carries_data else 1
        await there.until(lambda: len(there.received) >= count, "Some are missing")
        if here.bus.carries_data and there.data_of("turn") != data:
            raise ConformanceError("Their data or their order has changed.")


async def subscriptions_change_while_it_listens(make: BusFactory) -> None:
    """A topic subscribed to later is received; one unsubscribed from is not, or costs nothing."""
    name = _namespace()
    async with on(make(name)) as here, on(make(name), "always") as there:
        there.bus.subscribe("later")
        await _insist(here, there, "later")
        there.bus.unsubscribe("later")
        there.bus.subscribe("last")
        await _insist(here, there, "last")  # the server has made both changes, in their order
        there.received.clear()
        await here.bus.publish([BusMessage("later"), BusMessage("always")])
        await there.until(lambda: bool(there.data_of("always")), "It does not arrive")
        if here.bus.carries_data and there.data_of("later"):
            raise ConformanceError("A topic arrives that no one in the process subscribes to.")


async def namespaces_are_apart(make: BusFactory) -> None:
    """A database does not receive what another one sends over the same server."""
    async with on(make(_namespace()), "work") as here, on(make(_namespace()), "work") as other:
        await here.bus.publish([BusMessage("work")])
        await asyncio.sleep(2 * _AGAIN)
        if here.bus.carries_data and other.received:
            raise ConformanceError("Another namespace receives the message.")


async def it_is_connected_only_while_it_listens(make: BusFactory) -> None:
    """A bus that carries data says when it is connected, and refuses messages when it is not."""
    bus = make(_namespace())
    async with on(bus):
        if not bus.is_connected:
            raise ConformanceError("It is connected, and says that it is not.")
    if not bus.carries_data:
        return
    if bus.is_connected:
        raise ConformanceError("It says that it is connected after it has ended.")
    try:
        await bus.publish([BusMessage("work")])
    except Exception:  # noqa: BLE001 - any error will do: the caller continues without the bus
        return
    raise ConformanceError("A message is taken without a connection.")


def checks() -> Sequence[BusCheck]:
    """All checks."""
    return (
        messages_reach_other_processes,
        messages_keep_their_order_and_data,
        subscriptions_change_while_it_listens,
        namespaces_are_apart,
        it_is_connected_only_while_it_listens,
    )


def _namespace() -> str:
    return f"lango.{uuid4().hex}"
