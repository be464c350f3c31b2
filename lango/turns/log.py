"""Writing the logs of the turns a worker runs: gathered for a moment, then all in one go."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from lango.core.turns import Event, MessageDelta, ThoughtDelta
from lango.errors import StoreUnavailableError, TurnNotFoundError
from lango.store.turn_log import LoggedEvent, TurnLog, Write
from lango.store.turn_rows import Claim
from lango.turns.wake import Wakes

logger = logging.getLogger(__name__)

GATHER: Final = 0.05
"""Seconds between two writes, in which deltas are gathered."""
AGAIN_AFTER: Final = 0.5
TOGETHER: Final = 250
"""Turns whose events are written by one statement: making it keeps the event loop from others."""


@dataclass(slots=True)
class _Page:
    """What one turn has still to have written."""

    claim: Claim
    lost: Callable[[], None]
    last_number: int  # in the log, as far as we know
    waiting: list[Event] = field(default_factory=list[Event])
    in_doubt: list[Event] = field(default_factory=list[Event])
    """Sent, without word whether they arrived."""
    is_closing: bool = False


class LogWriter:
    """Writes to the logs of all turns of a worker."""

    def __init__(self, log: TurnLog, wakes: Wakes) -> None:
        self._log = log
        self._wakes = wakes
        self._pages: dict[str, _Page] = {}
        self._some = asyncio.Event()
        self._writing = asyncio.Lock()
        self._written = float("-inf")  # when that was last

    def begin(self, claim: Claim, lost: Callable[[], None]) -> None:
        """Open the log of a turn; `lost` is called if another worker has taken the turn over."""
        self._pages[claim.id] = _Page(claim, lost, claim.turn.last_event)

    def add(self, claim: Claim, event: Event) -> None:
        """Take an event; it is written within a moment."""
        page = self._pages[claim.id]
        joined = _joined(page.waiting[-1], event) if page.waiting else None
        if joined is not None:
            page.waiting[-1] = joined
        else:
            page.waiting.append(event)
        self._some.set()

    async def rest(self, claim: Claim) -> Sequence[Event]:
        """What is not yet written, for the one who closes the turn; nothing is written after."""
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
            await self._some.wait()
            await self._gather()
            try:
                await self.flush()
            except Exception as error:  # noqa: BLE001 - the events are kept, and tried again
                logger.warning("The logs could not be written, trying again: %s", error)
                await asyncio.sleep(AGAIN_AFTER)

    async def _gather(self) -> None:
        """Let some time pass since the last write; the first word after a while does not wait."""
        await asyncio.sleep(self._written + GATHER - time.monotonic())

    async def flush(self) -> None:
        """Write what has gathered, for all turns at once."""
        async with self._writing:
            for page in [each for each in self._pages.values() if each.in_doubt]:
                await self._settle(page)
            self._some.clear()
            pages = [p for p in self._pages.values() if p.waiting and not p.is_closing]
            for first in range(0, len(pages), TOGETHER):
                await self._write(pages[first : first + TOGETHER])
                self._written = time.monotonic()

    async def write(self, claim: Claim) -> None:
        """Write what has gathered for one turn."""
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
        except Exception as error:  # noqa: BLE001 - one of the events is at fault
            logger.warning("Events are written one turn at a time, as some are refused: %r", error)
            for page in pages:
                await self._write_apart(page)

    async def _write_apart(self, page: _Page) -> None:
        """Write the events of one turn, singly if they are refused together.

        A refused event is left out. The session has what it tells: no turn fails for its log.
        """
        await self._settle(page)
        events, page.waiting = page.waiting, []
        if len(events) > 1 and await self._is_written(page, events):
            return
        rest = deque(events)
        try:
            while rest:
                event = rest.popleft()
                if not await self._is_written(page, [event]):
                    left_out = (event.type, page.claim.turn.id)
                    logger.error("An event (%s) of turn %s is left out of its log.", *left_out)
        finally:
            page.waiting[:0] = rest

    async def _is_written(self, page: _Page, events: list[Event]) -> bool:
        """Write events of one turn; False if they are refused."""
        page.in_doubt = events
        try:
            await self._send([page])
        except StoreUnavailableError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever is wrong with them
            page.in_doubt = []
            logger.info("events of turn %s are refused: %r", page.claim.turn.id, error)
            return False
        return True

    async def _send(self, pages: Sequence[_Page]) -> None:
        """Write what is in doubt."""
        try:
            written = await self._log.append_many([Write(p.claim, p.in_doubt) for p in pages])
        except BaseException:
            self._some.set()
            raise
        news: dict[str, Sequence[LoggedEvent]] = {}
        for page, events in zip(pages, written, strict=True):
            page.in_doubt = []
            if events is None:
                page.lost()
            else:
                page.last_number = events[-1].number
                news[page.claim.turn.id] = events
        self._wakes.hand(news)

    async def _settle(self, page: _Page) -> None:
        """Find out what became of events whose write failed: the log's counter knows."""
        if not page.in_doubt:
            return
        turn = page.claim.turn
        try:
            read = await self._log.read(turn.session.tenant, turn.id, after=page.last_number)
        except TurnNotFoundError:  # deleted with its session
            page.in_doubt, page.waiting = [], []
            page.lost()
            return
        if read.turn.last_event < page.last_number + len(page.in_doubt):
            page.waiting[:0] = page.in_doubt
        page.last_number = read.turn.last_event
        page.in_doubt = []


def _joined(last: Event, event: Event) -> Event | None:
    """Two deltas of one message as one."""
    for kind in (MessageDelta, ThoughtDelta):
        if isinstance(last, kind) and isinstance(event, kind) and last.message == event.message:
            return kind(last.message, last.text + event.text)
    return None
