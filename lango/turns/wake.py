"""Wake-ups: code that changes turns notifies code that waits for the change.

Within a process they arrive immediately. PostgreSQL carries them between processes. On SQLite, or
when one is lost, waiters poll: a missing wake-up costs time and nothing else.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final, Self, TypeVar

from lango.core.ids import new_id
from lango.store.db.database import Database
from lango.store.db.listen import MAX_BYTES, Notices
from lango.store.turns.log import LoggedEvent

logger = logging.getLogger(__name__)

E = TypeVar("E", bound="Subscription")

WORK: Final = "work"
"""Topic: some session has a turn that could run."""
STOP: Final = "stop"
"""Topic: some running turn should stop."""
_HELLO: Final = "hello"  # a process has connected: those with readers of logs send _READING
_READING: Final = "reading"  # a process has readers of logs
_READING_AGAIN: Final = 10.0
_READING_HOLDS: Final = 25.0
_NEWS: Final = frozenset({WORK, STOP, _HELLO, _READING})
"""Topics that are sent even if no other process reads logs."""
_HANDED_AT_MOST: Final = 200
"""Events kept for one reader. A slower reader reads them from the log."""


class Subscription:
    """Waits for a topic."""

    def __init__(self) -> None:
        self._heard = asyncio.Event()

    def wake(self) -> None:
        """Wake the waiter."""
        self._heard.set()

    async def wait(self, seconds: float) -> bool:
        """Wait for a wake-up, or for one that came since the last wait; False if none came."""
        try:
            async with asyncio.timeout(seconds):
                await self._heard.wait()
        except TimeoutError:
            return False
        finally:
            self._heard.clear()
        return True


class LogSubscription(Subscription):
    """Waits for new events in one turn's log; receives directly what this process wrote."""

    def __init__(self) -> None:
        super().__init__()
        self._handed: list[LoggedEvent] = []
        self._must_look = False

    def wake(self) -> None:
        """Make the reader read the log."""
        self._must_look = True
        super().wake()

    def hand(self, events: Sequence[LoggedEvent]) -> None:
        """Pass on events that have been written; a slow reader's backlog is dropped."""
        if len(self._handed) + len(events) > _HANDED_AT_MOST:
            self._handed.clear()
        self._handed += events
        super().wake()

    def take(self, after: int) -> Sequence[LoggedEvent] | None:
        """The events passed on after a number; None if the log may hold more than those."""
        behind = [event for event in self._handed if event.number > after]
        has_gap = bool(behind) and behind[-1].number != after + len(behind)
        must_look, self._must_look = self._must_look or has_gap, False
        self._handed.clear()
        return None if must_look else behind


class WakeUps:
    """The wake-ups of one process on one database."""

    def __init__(self, database: Database) -> None:
        self.reaches_others = not database.is_sqlite
        self._notices = Notices(database)
        self._id = new_id("prc")
        self._ears: dict[str, set[Subscription]] = {}
        self._readers: dict[str, set[LogSubscription]] = {}
        self._outgoing: dict[str, None] = {}  # a set that keeps its order
        self._to_send = asyncio.Event()
        self._others_read_until = 0.0
        self._tasks: list[asyncio.Task[Any]] = []

    async def __aenter__(self) -> Self:
        self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def open(self) -> None:
        """Start to receive wake-ups of other processes, if the database can carry them."""
        if self.reaches_others and not self._tasks:
            hearing = self._notices.listen(self._hear, self._joined)
            loops = (hearing, self._send_for_ever(), self._say_who_reads())
            self._tasks = [asyncio.create_task(loop) for loop in loops]

    async def close(self) -> None:
        """Stop receiving wake-ups of other processes; waiters in this process poll."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if tasks and self._outgoing:
            with suppress(Exception):  # a receiver that misses it polls
                await self._send()

    @contextmanager
    def hear(self, topic: str) -> Generator[Subscription]:
        """Subscribe to one topic: WORK or STOP."""
        with _kept(self._ears, topic, Subscription()) as ear:
            yield ear

    @contextmanager
    def read(self, turn_id: str) -> Generator[LogSubscription]:
        """Subscribe to the log of a turn."""
        is_first = not self._readers
        with _kept(self._readers, turn_id, LogSubscription()) as ear:
            if is_first:
                self._queue(_READING)
            yield ear

    def tell(self, *topics: str) -> None:
        """Wake subscribers to these topics or logs: here immediately, in other processes soon."""
        for topic in topics:
            self._wake(topic)
        self._tell_others(*topics)

    def hand(self, logs: Mapping[str, Sequence[LoggedEvent]]) -> None:
        """Pass events just written to logs to their readers here; wake those in other processes."""
        for turn_id, events in logs.items():
            for ear in self._readers.get(turn_id, ()):
                ear.hand(events)
        self._tell_others(*logs)

    def _tell_others(self, *topics: str) -> None:
        others_read = time.monotonic() < self._others_read_until
        self._queue(*(topic for topic in topics if others_read or topic in _NEWS))

    def _wake(self, topic: str) -> None:
        for ear in (*self._ears.get(topic, ()), *self._readers.get(topic, ())):
            ear.wake()

    def _queue(self, *topics: str) -> None:
        if self.reaches_others and self._tasks and topics:
            self._outgoing.update(dict.fromkeys(topics))
            self._to_send.set()

    def _hear(self, text: str) -> None:
        sender, *topics = text.split(" ")
        if sender == self._id:
            return
        for topic in topics:
            if topic == _READING:
                self._others_read_until = time.monotonic() + _READING_HOLDS
            elif topic == _HELLO and self._readers:
                self._queue(_READING)
            self._wake(topic)

    def _joined(self) -> None:
        """On every connection, wake all waiters: they missed what was sent while there was none."""
        for topic in (*self._ears, *self._readers):
            self._wake(topic)
        self._queue(_HELLO, *([_READING] if self._readers else []))

    async def _say_who_reads(self) -> None:
        while True:
            await asyncio.sleep(_READING_AGAIN)
            if self._readers:
                self._queue(_READING)

    async def _send_for_ever(self) -> None:
        while True:
            await self._to_send.wait()
            try:
                await self._send()
            except Exception as error:  # noqa: BLE001 - a receiver that misses it polls
                logger.info("a wake-up was not sent: %s", type(error).__name__)

    async def _send(self) -> None:
        """Send the queued topics in as few notices as possible."""
        self._to_send.clear()
        topics, self._outgoing = self._outgoing, {}
        text = self._id
        for topic in topics:
            if len(text) + len(topic) >= MAX_BYTES:
                await self._notices.send(text)
                text = self._id
            text += f" {topic}"
        if topics:
            await self._notices.send(text)


@contextmanager
def _kept(ears: dict[str, set[E]], topic: str, ear: E) -> Generator[E]:
    """Register an ear for a topic, and unregister it on exit."""
    ears.setdefault(topic, set()).add(ear)
    try:
        yield ear
    finally:
        ears[topic].discard(ear)
        if not ears[topic]:
            del ears[topic]
