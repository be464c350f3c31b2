"""Writes the logs of the turns that a worker runs, in batches over all turns."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from lango.core.turns.events import Event, MessageDelta, ReasoningDelta, ToolProgress
from lango.errors import Fenced, StoreUnavailableError, TurnNotFoundError
from lango.store.turns.log import LoggedEvent, LogWrite, TurnLog
from lango.store.turns.rows import Claim
from lango.turns.wake import WakeUps

logger = logging.getLogger(__name__)

_Message = tuple[str, str]  # the type of its deltas, and its id

GATHER: Final = 0.05
"""Seconds between two writes, in which deltas are merged."""
GATHER_URGENT: Final = 0.005
"""Seconds of GATHER, for each turn that runs, if the event is not just more text of a message."""
STREAM_FOR: Final = 1.0
"""Seconds for which text stays unwritten that all readers receive without the log."""
RETRY_AFTER: Final = 0.5
TURNS_PER_WRITE: Final = 250
"""Turns per write statement: building a large one blocks the event loop."""


@dataclass(slots=True)
class _Page:
    """The unwritten events of one turn."""

    claim: Claim
    on_lost: Callable[[], None]
    last_number: int  # the last number known to be in the log
    waiting: list[Event] = field(default_factory=list[Event])
    in_doubt: list[Event] = field(default_factory=list[Event])
    """Sent, but not known to be written."""
    is_closing: bool = False
    is_lost: bool = False  # another worker has the turn
    message: _Message | None = None  # of the last event that was written, if that was a delta
    streamed: int = 0  # characters of the waiting event that readers have been sent
    write_by: float = float("-inf")  # the time at which streamed text is written

    @property
    def streams(self) -> bool:
        """Whether what waits is more text of a message that the log has begun.

        A reader may see it before it is written. If it is lost with this worker, the log has the
        message, and the next attempt resets it.
        """
        return (
            self.message is not None
            and len(self.waiting) == 1
            and not self.in_doubt
            and _message(self.waiting[0]) == self.message
        )

    def next_part(self) -> LoggedEvent:
        """The text that readers have not been sent, as a part of the event to be written."""
        data = self.waiting[0].data()
        text = str(data["text"])
        data["text"] = text[self.streamed :]
        self.streamed = len(text)
        number, epoch = self.last_number + 1, self.claim.epoch
        return LoggedEvent(number, self.waiting[0].type, data, epoch, time.time(), len(text))

    def drop_older(self, event: Event) -> None:
        """Drop the unwritten progress that newer progress of the same call replaces."""
        if isinstance(event, ToolProgress):
            self.waiting = [
                older
                for older in self.waiting
                if not (isinstance(older, ToolProgress) and older.call == event.call)
            ]

    def lose(self) -> None:
        """Drop the events: the log takes no more from this worker, nor do its readers."""
        self.is_lost = True
        self.in_doubt, self.waiting, self.streamed = [], [], 0
        self.on_lost()

    def mark_written(self, last_number: int) -> None:
        """Take note that the events in doubt are in the log."""
        self.last_number = last_number
        self.message, self.streamed = _message(self.in_doubt[-1]), 0
        self.in_doubt = []


class LogWriter:
    """Writes to the logs of all turns of a worker."""

    def __init__(self, log: TurnLog, wakes: WakeUps) -> None:
        self._log = log
        self._wakes = wakes
        self._pages: dict[str, _Page] = {}
        self._has_events = asyncio.Event()
        self._urgent = asyncio.Event()
        self._writing = asyncio.Lock()
        self._last_flush = float("-inf")  # time of the last flush

    def begin(self, claim: Claim, on_lost: Callable[[], None]) -> None:
        """Open the log of a turn; calls `on_lost` if another worker has taken over the turn."""
        self._pages[claim.id] = _Page(claim, on_lost, claim.turn.last_event)

    def add(self, claim: Claim, event: Event) -> None:
        """Queue an event for the next write; Fenced if the log takes no more under this claim."""
        page = self._pages.get(claim.id)
        if page is None or page.is_lost:
            raise Fenced
        page.drop_older(event)
        merged = _merged(page.waiting[-1], event) if page.waiting else None
        if merged is not None:
            page.waiting[-1] = merged
        else:
            page.waiting.append(event)
        self._has_events.set()
        if not page.streams and not isinstance(event, ToolProgress):
            self._urgent.set()

    async def rest(self, claim: Claim) -> Sequence[Event]:
        """The unwritten events, for the transaction that closes the turn; stops writing them."""
        async with self._writing:
            page = self._pages[claim.id]
            await self._settle(page)
            page.is_closing = True
            return tuple(page.waiting)

    def end(self, claim: Claim) -> None:
        """Forget a turn."""
        self._pages.pop(claim.id, None)

    async def run(self) -> None:
        """Write until cancelled."""
        while True:
            await self._wait()
            await self._gather()
            try:
                await self.flush()
            except Exception as error:  # noqa: BLE001 - the events are kept and retried
                logger.warning("The logs could not be written; retrying: %s", error)
                await asyncio.sleep(RETRY_AFTER)

    async def _wait(self) -> None:
        """Wait for an event, or until streamed text is to be written."""
        due = [p.write_by for p in self._pages.values() if p.streamed and not p.is_closing]
        try:
            async with asyncio.timeout(min(due) - time.monotonic() if due else None):
                await self._has_events.wait()
        except TimeoutError:
            pass

    async def _gather(self) -> None:
        """Wait until GATHER seconds after the last flush; an event after a pause does not wait.

        Only text that continues a message waits as long: a reader notices any other event.
        """
        until = self._last_flush + GATHER
        with suppress(TimeoutError):
            async with asyncio.timeout(until - time.monotonic()):
                await self._urgent.wait()
                await asyncio.sleep(GATHER_URGENT * len(self._pages))

    async def flush(self) -> None:
        """Write the queued events of all turns; text that needs no log yet is only streamed."""
        async with self._writing:
            for page in [page for page in self._pages.values() if page.in_doubt]:
                await self._settle(page)
            self._has_events.clear()
            self._urgent.clear()
            pages = [p for p in self._pages.values() if p.waiting and not p.is_closing]
            if pages:
                self._last_flush = time.monotonic()
            parts: dict[str, Sequence[LoggedEvent]] = {}
            batch: list[_Page] = []
            for page in pages:
                if self._may_stream(page):
                    parts[page.claim.turn.id] = [page.next_part()]
                else:
                    batch.append(page)
            self._wakes.publish_events(parts)
            for first in range(0, len(batch), TURNS_PER_WRITE):
                await self._write(batch[first : first + TURNS_PER_WRITE])
                self._last_flush = time.monotonic()

    def _may_stream(self, page: _Page) -> bool:
        """Whether the text of a page is sent to its readers now and written later."""
        if not (self._wakes.carries_text and page.streams):
            return False
        if not page.streamed:
            page.write_by = time.monotonic() + STREAM_FOR
        return time.monotonic() < page.write_by

    async def write(self, claim: Claim) -> None:
        """Write the queued events of one turn."""
        async with self._writing:
            page = self._pages[claim.id]
            await self._settle(page)
            if page.waiting:
                await self._write([page])

    async def _write(self, pages: Sequence[_Page]) -> None:
        for page in pages:
            page.in_doubt, page.waiting = page.waiting, []
        try:
            await self._send(pages)
        except StoreUnavailableError:
            raise
        except Exception as error:  # noqa: BLE001 - the database refuses one of the events
            logger.warning(
                "The database refused a batch of events; writing them one turn at a time: %r", error
            )
            for page in pages:
                await self._write_separately(page)

    async def _write_separately(self, page: _Page) -> None:
        """Write the events of one turn; if the batch is refused, one by one.

        A refused event is left out of the log. The session still has its content: a log never
        fails its turn.
        """
        await self._settle(page)
        events, page.waiting = page.waiting, []
        if len(events) > 1 and await self._try_write(page, events):
            return
        remaining = deque(events)
        try:
            while remaining:
                event, was_streamed = remaining.popleft(), page.streamed > 0
                if not await self._try_write(page, [event]):
                    left_out = (event.type, page.claim.turn.id)
                    logger.error(
                        "The database refused an event (%s) of turn %s; its log lacks the event.",
                        *left_out,
                    )
                    if was_streamed:  # its readers expect an event with its number
                        await self._try_write(page, [_without_text(event)])
                        page.streamed = 0
        finally:
            page.waiting[:0] = remaining

    async def _try_write(self, page: _Page, events: list[Event]) -> bool:
        """Write events of one turn; False if they are refused."""
        page.in_doubt = events
        try:
            await self._send([page])
        except StoreUnavailableError:
            raise
        except Exception as error:  # noqa: BLE001 - the events are at fault
            page.in_doubt = []
            logger.info("The database refused events of turn %s: %r", page.claim.turn.id, error)
            return False
        return True

    async def _send(self, pages: Sequence[_Page]) -> None:
        """Write the events in doubt."""
        try:
            stored = await self._log.append_many([LogWrite(p.claim, p.in_doubt) for p in pages])
        except BaseException:
            self._has_events.set()
            raise
        published: dict[str, Sequence[LoggedEvent]] = {}
        for page, events in zip(pages, stored, strict=True):
            if events is None:
                page.lose()
            else:
                page.mark_written(events[-1].number)
                published[page.claim.turn.id] = events
        self._wakes.publish_events(published)

    async def _settle(self, page: _Page) -> None:
        """Find out whether a failed write has arrived: the next event in the log is then its own.

        That event may also be another worker's, which has taken over the turn.
        """
        if not page.in_doubt:
            return
        turn = page.claim.turn
        try:
            read = await self._log.read(turn.session.tenant, turn.id, after=page.last_number)
        except TurnNotFoundError:  # deleted with its session
            page.lose()
            return
        if not read.events:
            page.waiting[:0] = page.in_doubt
            page.in_doubt = []
        elif read.events[0].epoch == page.claim.epoch:
            page.mark_written(page.last_number + len(page.in_doubt))
        else:
            page.lose()


def _message(event: Event) -> _Message | None:
    """The message that an event adds text to, and which kind of text."""
    is_delta = isinstance(event, MessageDelta | ReasoningDelta)
    return (event.type, event.message) if is_delta else None


def _without_text(event: Event) -> Event:
    """An event in place of a delta that the database refuses."""
    is_delta = isinstance(event, MessageDelta | ReasoningDelta)
    return type(event)(event.message, "") if is_delta else event


def _merged(last: Event, event: Event) -> Event | None:
    """Two deltas of one message merged; None if they cannot be."""
    for kind in (MessageDelta, ReasoningDelta):
        if isinstance(last, kind) and isinstance(event, kind) and last.message == event.message:
            return kind(last.message, last.text + event.text, last.author)
    return None
