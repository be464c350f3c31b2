"""Wake-ups: code that changes turns notifies code that waits for the change.

Within a process they arrive immediately. A bus carries them between processes, and with them the
events of logs if it can. On SQLite, or when one is lost, waiters poll: a missing wake-up costs time
and nothing else.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final, Self, TypeVar

from lango.store.turns.log import LoggedEvent, TurnLog
from lango.store.turns.rows import Turn
from lango.turns.bus.connection import ANSWER_WITHIN, cancel_all
from lango.turns.bus.event_messages import decode_events, encode_events
from lango.turns.bus.protocol import Bus, BusMessage
from lango.turns.log.poller import LogPoller

logger = logging.getLogger(__name__)

E = TypeVar("E", bound="Subscription")

WORK: Final = "work"
"""Topic: some session has a turn that could run."""
STOP: Final = "stop"
"""Topic: some running turn should stop."""
_HELLO: Final = "hello"  # a process has connected: those with readers of logs send _READING
_READING: Final = "reading"  # a process has readers of logs
_POLL_CONNECTED: Final = 2.0
_POLL_ALONE: Final = 0.25
_ANNOUNCE_EVERY: Final = 10.0
_ANNOUNCEMENT_LASTS: Final = 25.0
_ALWAYS_SENT: Final = frozenset({WORK, STOP, _HELLO, _READING})
"""Topics that are sent even if no other process reads logs."""
_MAX_PENDING: Final = 200
"""Events kept for one reader. A slower reader reads them from the log."""
_MAX_UNSENT: Final = 10_000
"""Messages kept while the bus does not take them. Receivers that miss the older ones poll."""


class Subscription:
    """Waits for a topic."""

    def __init__(self) -> None:
        self._woken = asyncio.Event()

    def wake(self) -> None:
        """Wake the waiter."""
        self._woken.set()

    async def wait(self, seconds: float | None = None) -> bool:
        """Wait for a wake-up, or for one that came since the last wait; False if none came."""
        try:
            async with asyncio.timeout(seconds):
                await self._woken.wait()
        except TimeoutError:
            return self._woken.is_set()  # a wake-up may come in the pass in which the time ends
        finally:
            self._woken.clear()
        return True


class LogSubscription(Subscription):
    """Waits for new events in one turn's log; receives those that the bus or this process delivers.

    Among them may be parts of an event that is not written yet, as a model streams its text.
    """

    def __init__(self) -> None:
        super().__init__()
        self.closed: Turn | None = None  # as a worker of this process has closed it
        self._pending: list[LoggedEvent] = []
        self._must_read_log = False
        self._must_poll = False

    def wake(self) -> None:
        """Make the reader read the log."""
        self._must_read_log = True
        super().wake()

    def poll(self) -> None:
        """Make the reader read the turn and its log: both may have changed without a wake-up."""
        self._must_poll = True
        super().wake()

    def take_poll(self) -> bool:
        """Whether the reader must read the turn, too; only once after each `poll`."""
        must_poll, self._must_poll = self._must_poll, False
        return must_poll

    def deliver(self, events: Sequence[LoggedEvent]) -> None:
        """Pass on events; a slow reader's backlog is dropped."""
        if len(self._pending) + len(events) > _MAX_PENDING:
            self._pending.clear()
            self._must_read_log = True
        self._pending += events
        super().wake()

    def take(self, after: int) -> Sequence[LoggedEvent] | None:
        """The events and parts passed on after a number; None if the log may hold others."""
        pending, self._pending = self._pending, []
        must_read_log, self._must_read_log = self._must_read_log, False
        newer = [event for event in pending if event.number > after]
        for event in newer:
            must_read_log = must_read_log or event.number > after + 1
            after = max(after, event.position.number)
        return None if must_read_log else newer


class WakeUps:
    """The wake-ups of one process on one database."""

    def __init__(self, bus: Bus) -> None:
        self.reaches_others = bus.reaches_others
        self._bus = bus
        self._subscriptions: dict[str, set[Subscription]] = {}
        self._readers: dict[str, set[LogSubscription]] = {}
        self._outgoing: list[BusMessage] = []
        self._to_send = asyncio.Event()
        self._others_read_until = 0.0
        self._announce_from = float("-inf")  # until then, the others know that this process reads
        self._tasks: list[asyncio.Task[Any]] = []
        self._poller: LogPoller | None = None

    async def __aenter__(self) -> Self:
        self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def is_connected(self) -> bool:
        """Whether wake-ups of other processes arrive at present, as far as is known."""
        return self.reaches_others and self._bus.is_connected

    @property
    def poll_interval(self) -> float:
        """Seconds between two polls of what no wake-up reports."""
        return _POLL_CONNECTED if self.is_connected else _POLL_ALONE

    def poller(self, log: TurnLog) -> LogPoller:
        """The poller for all readers of logs in this process; `log` is that of the engine."""
        if self._poller is None:
            self._poller = LogPoller(log, lambda: self.poll_interval)
        return self._poller

    @property
    def carries_text(self) -> bool:
        """Whether all readers receive text before it is in the log.

        Without a bus that carries it, only while no other process reads logs.
        """
        if self._bus.carries_data:
            return self._bus.is_connected
        return bool(self._tasks) and not self._others_read

    @property
    def _others_read(self) -> bool:
        return time.monotonic() < self._others_read_until

    def open(self) -> None:
        """Start to receive wake-ups of other processes, if the bus can carry them."""
        if self.reaches_others and not self._tasks:
            listening = self._bus.listen(self._on_message, self._on_connect)
            loops = [listening, self._send_repeatedly()]
            if not self._bus.carries_data:
                loops.append(self._announce_repeatedly())
            self._tasks = [asyncio.create_task(loop) for loop in loops]

    async def close(self) -> None:
        """Stop receiving wake-ups of other processes; waiters in this process poll."""
        if self._tasks and self._outgoing:
            with suppress(Exception):  # a receiver that misses it polls
                async with asyncio.timeout(ANSWER_WITHIN):
                    await self._send()
        tasks, self._tasks = self._tasks, []
        await cancel_all(*tasks)

    @contextmanager
    def subscribe(self, topic: str) -> Generator[Subscription]:
        """Subscribe to one topic: WORK or STOP."""
        with self._subscribed(self._subscriptions, topic, Subscription()) as subscription:
            yield subscription

    @contextmanager
    def subscribe_to_log(self, turn_id: str) -> Generator[LogSubscription]:
        """Subscribe to the log of a turn."""
        with self._subscribed(self._readers, turn_id, LogSubscription()) as subscription:
            if not self._bus.carries_data and time.monotonic() > self._announce_from:
                self._announce()
            yield subscription

    def notify(self, *topics: str) -> None:
        """Wake subscribers to these topics or logs: here immediately, in other processes soon."""
        for topic in topics:
            self.wake(topic)
        self._notify_others(*topics)

    def publish_events(self, logs: Mapping[str, Sequence[LoggedEvent]]) -> None:
        """Pass events of logs, or parts of their next event, to readers in all processes."""
        for turn_id, events in logs.items():
            for subscription in self._readers.get(turn_id, ()):
                subscription.deliver(events)
        if not self._bus.carries_data:
            self._notify_others(*logs)
        elif self._bus.is_connected:
            entries = logs.items()
            self._send_soon(BusMessage(turn, encode_events(events)) for turn, events in entries)

    def close_log(self, closed: Turn, last_events: Sequence[LoggedEvent]) -> None:
        """Pass the last events of a turn to its readers, with the closed turn in this process."""
        for subscription in self._readers.get(closed.id, ()):
            subscription.closed = closed
        self.publish_events({closed.id: last_events})

    def _notify_others(self, *topics: str) -> None:
        every = self._bus.carries_data or self._others_read
        self._queue(*(topic for topic in topics if every or topic in _ALWAYS_SENT))

    def wake(self, topic: str) -> None:
        """Wake subscribers to a topic or log in this process."""
        for subscription in (*self._subscriptions.get(topic, ()), *self._readers.get(topic, ())):
            subscription.wake()

    def _announce(self) -> None:
        """Let other processes know that this one has readers of logs."""
        self._announce_from = time.monotonic() + _ANNOUNCE_EVERY
        self._queue(_READING)

    def _queue(self, *topics: str) -> None:
        self._send_soon(map(BusMessage, topics))

    def _send_soon(self, messages: Iterable[BusMessage]) -> None:
        if self.reaches_others and self._tasks:
            self._outgoing += messages
            self._to_send.set()
            if len(self._outgoing) > _MAX_UNSENT:
                del self._outgoing[: _MAX_UNSENT // 2]

    def _on_message(self, topic: str, data: bytes) -> None:
        if topic == _READING:
            self._others_read_until = time.monotonic() + _ANNOUNCEMENT_LASTS
        elif topic == _HELLO:
            self._announce_again()
        if (events := decode_events(data)) is None:
            self.wake(topic)
            return
        for subscription in self._readers.get(topic, ()):
            subscription.deliver(events)

    def _on_connect(self) -> None:
        """On every connection, wake all waiters: they missed what was sent while there was none."""
        for topic in (*self._subscriptions, *self._readers):
            self.wake(topic)
        if not self._bus.carries_data:
            self._queue(_HELLO)
            self._announce_again()

    def _announce_again(self) -> None:
        """Announce the readers of this process; without any, the next one does."""
        self._announce_from = float("-inf")
        if self._readers:
            self._announce()

    async def _announce_repeatedly(self) -> None:
        while True:
            await asyncio.sleep(_ANNOUNCE_EVERY)
            self._announce_again()

    async def _send_repeatedly(self) -> None:
        while True:
            await self._to_send.wait()
            try:
                await self._send()
            except Exception as error:  # noqa: BLE001 - a receiver that misses it polls
                logger.info("A wake-up could not be sent: %s", type(error).__name__)
                self._announce_from = float("-inf")

    async def _send(self) -> None:
        """Send the queued messages together."""
        self._to_send.clear()
        messages, self._outgoing = self._outgoing, []
        if messages:
            await self._bus.publish(messages)

    @contextmanager
    def _subscribed(
        self, subscriptions: dict[str, set[E]], topic: str, subscription: E
    ) -> Generator[E]:
        """Register a subscription to a topic, and unregister it on exit."""
        if topic not in subscriptions:
            self._bus.subscribe(topic)
        subscriptions.setdefault(topic, set()).add(subscription)
        try:
            yield subscription
        finally:
            subscriptions[topic].discard(subscription)
            if not subscriptions[topic]:
                del subscriptions[topic]
                self._bus.unsubscribe(topic)
