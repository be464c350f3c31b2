"""Streams a turn's events from start to end, bypassing the log where possible.

Events of attempts in this process arrive directly. The log supplies the rest: turns that another
process runs, and events after this process lost the turn.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Iterable, Iterator
from contextlib import aclosing
from typing import Final

from lango.core.turns.event_json import event_of
from lango.core.turns.events import (
    ENDS,
    End,
    Event,
    MessageCompleted,
    MessageDelta,
    MessageReset,
    Started,
    TurnEvent,
)
from lango.core.turns.positions import Position
from lango.store.turns.log import LogCursor, LoggedEvent
from lango.store.turns.rows import Claim, Turn
from lango.turns.log.feeds import AttemptBegun, AttemptOver, Feed, FeedItem
from lango.turns.log.replay import name_of
from lango.turns.service import Turns

_READ_LOG_AFTER: Final = 0.05
"""Seconds before the log is read: an attempt of this process usually begins within them."""
_ACCEPTED_AND_STARTED: Final = 2


async def follow(turns: Turns, turn: Turn, feed: Feed) -> AsyncGenerator[TurnEvent]:
    """Stream a turn's events up to its end; `feed` carries those of this process's attempts."""
    following = _Following(turns, turn, feed)
    try:
        async with aclosing(following.events()) as events:
            async for event in events:
                yield event
                if isinstance(event, ENDS):
                    return
    finally:
        await following.stop()


class _Following:
    def __init__(self, turns: Turns, turn: Turn, feed: Feed) -> None:
        self._turns = turns
        self._turn = turn
        self._feed = feed
        self._cursor = LogCursor(Position())  # in the log, after what is accounted for
        self._received: _ReceivedEvents | None = None  # of the latest attempt in this process
        self._receives = False
        self._reading: asyncio.Task[None] | None = None

    async def events(self) -> AsyncGenerator[TurnEvent]:
        """All events, and possibly more after the end."""
        self._start_reading()
        while True:
            for event in await self._events_of(await self._feed.get()):
                yield event

    async def _events_of(self, item: FeedItem) -> Iterable[TurnEvent]:
        match item:
            case Exception() as error:
                raise error
            case AttemptBegun(claim):
                return await self._attempt_begun(claim)
            case AttemptOver(end):
                return self._attempt_over(end)
            case LoggedEvent() as logged:
                return self._logged(logged)
            case Event() as event:
                return [self._received.take(event)] if self._receives and self._received else []

    def _attempt_over(self, end: End | None) -> list[TurnEvent]:
        """The end, if the attempt closed the turn; else start to read the log."""
        events: list[TurnEvent] = [end] if end is not None and self._receives else []
        self._receives = False
        if not events:
            self._start_reading()
        return events

    async def _attempt_begun(self, claim: Claim) -> list[TurnEvent]:
        """The log's events before an attempt, whose own events arrive directly from here on."""
        await self.stop()
        last, events = claim.turn.last_event, list[TurnEvent]()
        after = self._cursor.position.number
        if last == _ACCEPTED_AND_STARTED and after < last:
            events.append(Started(claim.turn.attempts))
        elif after < last:
            before = await self._turns.log.read_all(claim.turn)
            events += [
                event for entry in before if entry.number <= last for event in self._logged(entry)
            ]
        self._cursor.position = Position(last)
        self._received, self._receives = _ReceivedEvents(claim.epoch), True
        return events

    def _logged(self, logged: LoggedEvent) -> Iterator[TurnEvent]:
        """The event of a log entry, unless the reader already has it."""
        unread = self._cursor.read(logged)
        event = event_of(unread.type, unread.data) if unread is not None else None
        if event is None:
            return
        if self._received is None:
            yield event
        else:
            yield from self._received.unreceived(logged, event)

    def _start_reading(self) -> None:
        """Start to read the log, after the last known event."""
        if self._reading is None:
            self._reading = asyncio.create_task(self._read_log())

    async def _read_log(self) -> None:
        try:
            await asyncio.sleep(_READ_LOG_AFTER)
            async for logged in self._turns.events(self._turn.id, after=self._cursor.position):
                self._feed.put_nowait(logged)
        except Exception as error:  # noqa: BLE001 - raised by the reader of the feed
            self._feed.put_nowait(error)

    async def stop(self) -> None:
        """Stop reading the log."""
        reading, self._reading = self._reading, None
        if reading is not None:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)


class _ReceivedEvents:
    """The events received directly from an attempt, to deduplicate the log against them."""

    def __init__(self, epoch: int) -> None:
        self._epoch = epoch
        self._names: Counter[tuple[str, str]] = Counter()
        self._drafts: dict[str, None] = {}
        self._reset_messages: set[str] = set()

    def take(self, event: Event) -> TurnEvent:
        """Record an event and return it."""
        if isinstance(event, MessageDelta):
            self._drafts[event.message] = None
        elif isinstance(event, MessageCompleted | MessageReset):
            self._drafts.pop(event.message, None)
        self._names[name_of(event.type, event.data())] += 1
        return event  # pyright: ignore[reportReturnType]  # attempts publish only these

    def unreceived(self, logged: LoggedEvent, event: TurnEvent) -> Iterator[TurnEvent]:
        """An event of the log, unless the reader already has it.

        The first event of a later attempt first resets the unfinished messages: the log may lack
        deltas that the reader has received.
        """
        name = name_of(logged.type, logged.data)
        if logged.epoch <= self._epoch:
            self._names[name] -= 1
            if isinstance(event, ENDS):  # the turn was closed, but the attempt did not report it
                yield event
            return
        for message in self._drafts:
            yield MessageReset(message)
        self._reset_messages |= self._drafts.keys()
        self._drafts.clear()
        if isinstance(event, MessageReset) and event.message in self._reset_messages:
            return
        if self._names[name] > 0 and name[1]:
            self._names[name] -= 1
            return
        yield event
