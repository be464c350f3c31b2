"""Reading a turn from its beginning to its end, without waiting for the log where that can be.

What this process runs is heard as it happens. The log has the rest: a turn that another process
runs, and what comes after this one has lost it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Iterable, Iterator
from contextlib import aclosing
from typing import Final

from lango.core.turn_json import event_of
from lango.core.turns import (
    ENDS,
    End,
    Event,
    MessageCompleted,
    MessageDelta,
    MessageReset,
    Started,
    TurnEvent,
)
from lango.store.turn_log import LoggedEvent
from lango.store.turn_rows import Claim, Turn
from lango.turns.feeds import Begun, Feed, Heard, Over
from lango.turns.retelling import name_of
from lango.turns.service import Turns

_A_MOMENT: Final = 0.05
"""Seconds in which an attempt of this process begins, as a rule: the log is not read before."""
_ACCEPTED_AND_STARTED: Final = 2


async def follow(turns: Turns, turn: Turn, feed: Feed) -> AsyncGenerator[TurnEvent]:
    """What happens in a turn, up to its end; `feed` is what this process's attempts tell of it."""
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
        self._after = 0  # the number of the last event of the log that is known
        self._heard: _Heard | None = None  # of the attempt that was heard last
        self._hears = False
        self._reading: asyncio.Task[None] | None = None

    async def events(self) -> AsyncGenerator[TurnEvent]:
        """Everything, and perhaps more behind the end."""
        self._read()
        while True:
            for event in await self._told(await self._feed.get()):
                yield event

    async def _told(self, heard: Heard) -> Iterable[TurnEvent]:
        match heard:
            case Exception() as error:
                raise error
            case Begun(claim):
                return await self._begun(claim)
            case Over(end):
                return self._over(end)
            case LoggedEvent() as logged:
                return self._logged(logged)
            case Event() as event:
                return [self._heard.take(event)] if self._hears and self._heard else []

    def _over(self, end: End | None) -> list[TurnEvent]:
        """The end, if it was heard of; else the log will know what comes next."""
        told: list[TurnEvent] = [end] if end is not None and self._hears else []
        self._hears = False
        if not told:
            self._read()
        return told

    async def _begun(self, claim: Claim) -> list[TurnEvent]:
        """What the log had before an attempt, which is heard from here on."""
        await self.stop()
        last, told = claim.turn.last_event, list[TurnEvent]()
        if last == _ACCEPTED_AND_STARTED and self._after < last:
            told.append(Started(claim.turn.attempts))
        elif self._after < last:
            before = await self._turns.log.read_all(claim.turn)
            told += [one for each in before if each.number <= last for one in self._logged(each)]
        self._after = last
        self._heard, self._hears = _Heard(claim.epoch), True
        return told

    def _logged(self, logged: LoggedEvent) -> Iterator[TurnEvent]:
        """What an event of the log tells that was not told."""
        if logged.number <= self._after:
            return
        self._after = logged.number
        event = event_of(logged.type, logged.data)
        if event is None:
            return
        if self._heard is None:
            yield event
        else:
            yield from self._heard.unheard(logged, event)

    def _read(self) -> None:
        """Begin to read the log, behind what is known."""
        if self._reading is None:
            self._reading = asyncio.create_task(self._pass_on())

    async def _pass_on(self) -> None:
        try:
            await asyncio.sleep(_A_MOMENT)
            async for logged in self._turns.events(self._turn.id, after=self._after):
                self._feed.put_nowait(logged)
        except Exception as error:  # noqa: BLE001 - raised where the turn is read
            self._feed.put_nowait(error)

    async def stop(self) -> None:
        """Read the log no more."""
        reading, self._reading = self._reading, None
        if reading is not None:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)


class _Heard:
    """What was heard of an attempt, for the time after it: the log may lack some of it."""

    def __init__(self, epoch: int) -> None:
        self._epoch = epoch
        self._names: Counter[tuple[str, str]] = Counter()
        self._drafts: dict[str, None] = {}
        self._forgotten: set[str] = set()

    def take(self, event: Event) -> TurnEvent:
        """Take an event down, on its way."""
        if isinstance(event, MessageDelta):
            self._drafts[event.message] = None
        elif isinstance(event, MessageCompleted | MessageReset):
            self._drafts.pop(event.message, None)
        self._names[name_of(event.type, event.data())] += 1
        return event  # pyright: ignore[reportReturnType]  # attempts tell nothing else

    def unheard(self, logged: LoggedEvent, event: TurnEvent) -> Iterator[TurnEvent]:
        """An event of the log, unless it was heard.

        The first one of a later attempt takes back what was heard of messages cut off: of deltas
        that were never written the log knows nothing.
        """
        name = name_of(logged.type, logged.data)
        if logged.epoch <= self._epoch:
            self._names[name] -= 1
            if isinstance(event, ENDS):  # closed, though we did not live to hear of it
                yield event
            return
        for message in self._drafts:
            yield MessageReset(message)
        self._forgotten |= self._drafts.keys()
        self._drafts.clear()
        if isinstance(event, MessageReset) and event.message in self._forgotten:
            return
        if self._names[name] > 0 and name[1]:
            self._names[name] -= 1
            return
        yield event
