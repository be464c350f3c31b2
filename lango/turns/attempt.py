"""One attempt at a turn: from the claim to the close, or to the moment it is lost."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Final, Protocol

from lango.core.failpoints import failpoint
from lango.core.turns import (
    ENDS,
    Cancelled,
    End,
    Event,
    Failed,
    GivenUp,
    MessageCompleted,
    MessageDelta,
    MessageReset,
    Started,
    TurnEvent,
)
from lango.errors import Fenced, StoreUnavailableError, TurnError, TurnTimeoutError
from lango.providers.turnstile import Turnstile
from lango.store.sessions import SqlSessionStore
from lango.store.turn_log import TurnLog
from lango.store.turn_queue import Closed, TurnQueue
from lango.store.turn_rows import Claim
from lango.turns.feeds import Begun, Feeds
from lango.turns.log import LogWriter
from lango.turns.retelling import resets, stored_events, untold

logger = logging.getLogger(__name__)

STOP_GRACE: Final = 5.0
"""Seconds an agent has to end after it was asked to."""
_CLOSE_AGAIN: Final = 1.0


class LoadedApp(Protocol):
    """An app that a worker can run turns of."""

    @property
    def fingerprint(self) -> str:
        """What tells this agent from a changed one."""
        ...

    def run(self, claim: Claim, *, abort: asyncio.Event) -> AsyncGenerator[TurnEvent]:
        """Run or resume the turn of a claim: what happens, one end. The turn is not closed.

        A claim with a verdict is not run: its history is closed, and the verdict is its end.
        """
        ...


@dataclass(frozen=True, slots=True)
class Desk:
    """What every attempt of a worker needs."""

    store: SqlSessionStore
    queue: TurnQueue
    log: TurnLog
    writer: LogWriter
    feeds: Feeds = field(default_factory=Feeds)
    beginning: Turnstile = field(default_factory=lambda: Turnstile(at_once=1))


class Attempt:
    """A claimed turn while this worker runs it."""

    def __init__(self, desk: Desk, app: LoadedApp, claim: Claim) -> None:
        self.claim = claim
        self.closed: Closed | None = None
        self.end: End | None = None  # of the turn, once it is closed
        self._desk = desk
        self._app = app
        self._abort = asyncio.Event()
        self._expired = self._given_up = False
        self._closing = claim.verdict is not None
        self._text: dict[str, str] = {}
        desk.writer.begin(claim, self.give_up)
        desk.feeds.tell(claim.turn, Begun(claim))
        self.task = asyncio.create_task(self._run(), name=claim.turn.id)

    def stop(self) -> None:
        """Ask the agent to end; one that does not is cut off after a while."""
        if not self._abort.is_set():
            self._abort.set()
            asyncio.get_running_loop().call_later(STOP_GRACE, self._cut)

    def give_up(self) -> None:
        """End without closing: the turn is another worker's now, or will be."""
        if not self._closing:  # closing finds that out by itself, and may be past the point
            self.abandon()

    def abandon(self) -> None:
        """End at once, in whatever state."""
        self._given_up = True
        self.task.cancel()

    def _cut(self) -> None:
        if not self._closing:
            self.task.cancel()

    def _expire(self) -> None:
        if not self._closing:
            self._expired = True
            self.stop()

    async def _run(self) -> None:
        timer = asyncio.get_running_loop().call_later(self.claim.time_left, self._expire)
        try:
            verdict = self.claim.verdict
            end = await (self._end() if verdict is None else self._end_as(verdict))
            self._closing = True
            self.closed = await self._close(end)
            failpoint("turn.closed")
        except asyncio.CancelledError:
            logger.info("Turn %s was given up.", self.claim.turn.id)
        except BaseException as error:
            if not _is_fence(error):
                raise
            logger.info("Turn %s has been taken over by another worker.", self.claim.turn.id)
        finally:
            timer.cancel()
            self._desk.writer.end(self.claim)

    async def _end(self) -> End:
        """Run the turn; how it ended."""
        try:
            if self.claim.resumes:
                await self._retell()
            end = await self._drive()
        except asyncio.CancelledError:
            if self._given_up or not self._abort.is_set():
                raise
            self.task.uncancel()
            end = Cancelled(self._unfinished)
        except Exception as error:
            logger.exception("Turn %s failed outside its agent.", self.claim.turn.id)
            end = Failed(error, self._unfinished)
        if self._expired and isinstance(end, Cancelled):
            return Failed(TurnTimeoutError(), end.text, end.usage)
        return end

    async def _end_as(self, verdict: GivenUp) -> End:
        """Close the history of a turn that is not run again, however long the database needs."""
        while True:
            try:
                end = await self._drive()
                await self._retell()
            except StoreUnavailableError:
                logger.warning("Turn %s cannot be given up yet.", self.claim.turn.id)
                await asyncio.sleep(_CLOSE_AGAIN)
            except Exception:
                logger.exception("The history of turn %s stays open.", self.claim.turn.id)
                return verdict
            else:
                return end if type(end) is type(verdict) else verdict

    async def _drive(self) -> End:
        await self._desk.beginning.enter()  # the event loop would stand still for many together
        end: End | None = None
        async with aclosing(self._app.run(self.claim, abort=self._abort)) as events:
            async for event in events:
                if isinstance(event, ENDS):
                    end = event
                elif not isinstance(event, Started):  # which the claim has written
                    self._tell(event)
        return end or Failed(TurnError("The agent ended without a word."))

    def _tell(self, event: Event) -> None:
        if isinstance(event, MessageDelta):
            self._text[event.message] = self._text.get(event.message, "") + event.text
        elif isinstance(event, MessageCompleted | MessageReset):
            self._text.pop(event.message, None)
        self._desk.writer.add(self.claim, event)
        self._desk.feeds.tell(self.claim.turn, event)

    @property
    def _unfinished(self) -> str:
        return "\n\n".join(self._text.values())

    async def _retell(self) -> None:
        """Tell what the attempts before stored and did not tell, and what came to nothing.

        A turn that is given up ends with what it has: nothing comes in place of a cut message.
        """
        turn = self.claim.turn
        logged = await self._desk.log.read_all(turn)
        missing = untold(logged, await stored_events(self._desk.store, turn, whole=False))
        forgotten = resets(logged, missing) if self.claim.verdict is None else []
        for event in [*forgotten, *missing]:
            self._tell(event)

    async def _close(self, end: End) -> Closed:
        """Close the turn, however long the database needs; Fenced if it is not ours any more."""
        for which in self._ends(end):
            while True:
                try:
                    rest = await self._desk.writer.rest(self.claim) if which is end else ()
                    closed = await self._desk.queue.close(self.claim, which, rest)
                    self.end = which
                    return closed
                except StoreUnavailableError:
                    logger.warning("Turn %s cannot be closed yet.", self.claim.turn.id)
                    await asyncio.sleep(_CLOSE_AGAIN)
                except Exception:
                    logger.exception("Turn %s cannot be closed as it ended.", self.claim.turn.id)
                    break
        raise TurnError(f"Turn {self.claim.turn.id} could not be closed.")

    def _ends(self, end: End) -> Iterator[End]:
        """How it ended, and what stands for that if the database does not take it."""
        yield end
        yield Failed(TurnError("The end of this turn could not be stored; the log says why."))


def _is_fence(error: BaseException) -> bool:
    """Whether this is the fence, perhaps among others in a group of tasks."""
    inner: Sequence[BaseException] = getattr(error, "exceptions", ())
    return isinstance(error, Fenced) or any(map(_is_fence, inner))
