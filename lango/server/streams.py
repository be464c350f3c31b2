"""Server-sent events: the log of a turn on a wire, from any number, to as many as fit.

Starlette's own streaming carries it. sse-starlette was left out: it replaces uvicorn's signal
handler when it is imported, and runs four tasks for each stream.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Generator
from contextlib import aclosing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from lango.core.turns import ThoughtDelta
from lango.core.values import json_text
from lango.errors import (
    KeyLimitError,
    LangoError,
    ServerBusyError,
    TurnNotFoundError,
    UnauthorizedError,
)
from lango.server.callers import Caller
from lango.store.turn_log import LoggedEvent
from lango.turns.wake import Ear

logger = logging.getLogger(__name__)

Recheck = Callable[[], Awaitable[None]]

MEDIA_TYPE: Final = "text/event-stream"
HEARTBEAT: Final = 15.0
RECHECKED: Final = 15.0
"""Seconds after which the credential of a stream's caller is looked at again."""
_COMMENT: Final = b":\n\n"
_HEADERS: Final = {
    "Cache-Control": "no-cache, no-transform",  # no proxy may gather it, or pack it
    "X-Accel-Buffering": "no",
}
_AHEAD: Final = 1_000  # events read for a client that does not keep up


def frame(turn_id: str, event: LoggedEvent) -> bytes:
    """One event on the wire."""
    at = datetime.fromtimestamp(event.at, UTC).isoformat().replace("+00:00", "Z")
    told = {"id": event.number, "type": event.type, "turn": turn_id, "at": at} | event.data
    return f"id: {event.number}\nevent: {event.type}\ndata: {json_text(told)}\n\n".encode()


async def frames(
    turn_id: str, events: AsyncGenerator[LoggedEvent], *, thoughts: bool
) -> AsyncGenerator[bytes]:
    """A log on the wire; what the model thinks is left out unless it is wished for."""
    async with aclosing(events):
        async for event in events:
            if thoughts or event.type != ThoughtDelta.type:
                yield frame(turn_id, event)


class Seat:
    """The place of one stream among those that a process takes."""

    def __init__(self, streams: Streams, who: Caller, recheck: Recheck) -> None:
        self.recheck = recheck
        self.tenant, self.holder = who.tenant, _holder(who)
        self.heartbeat = streams.heartbeat
        self._streams = streams
        self._pump: asyncio.Task[object] | None = None
        self._is_over = False

    def run(self, pump: asyncio.Task[object]) -> None:
        """Say what the stream is fed by; it is stopped with the stream."""
        self._pump = pump
        if self._is_over:
            pump.cancel()

    def end(self) -> None:
        """End the stream, without an end of its turn: its client goes on elsewhere."""
        self._is_over = True
        if self._pump is not None:
            self._pump.cancel()

    def leave(self) -> None:
        """Make room for another."""
        self._streams.seats.discard(self)


@dataclass(frozen=True)
class StreamLimits:
    """How many streams there may be at a time in one process.

    None for a tenant: four fifths of them; for a key: half of them.
    """

    most: int
    per_tenant: int | None = None
    per_key: int | None = None

    @property
    def of_tenant(self) -> int:
        """Those of one tenant."""
        return max(self.most * 4 // 5, 1) if self.per_tenant is None else self.per_tenant

    @property
    def of_key(self) -> int:
        """Those of one credential."""
        return max(self.most // 2, 1) if self.per_key is None else self.per_key


class Streams:
    """The streams of one process: so many at most, and all of them ended when it stops."""

    def __init__(self, limits: StreamLimits, heartbeat: float = HEARTBEAT) -> None:
        self.heartbeat = heartbeat
        self.seats: set[Seat] = set()
        self._limits = limits
        self._is_draining = False

    @contextmanager
    def opening(self, who: Caller, recheck: Recheck) -> Generator[Seat]:
        """A seat for the response that is made within; ServerBusyError if there is none.

        KeyLimitError if the caller's key, or its tenant, has as many as it may. `recheck` is called
        now and then while the stream lasts, which ends when it raises UnauthorizedError.
        """
        if self._is_draining or len(self.seats) >= self._limits.most:
            raise ServerBusyError
        self._check(who)
        seat = Seat(self, who, recheck)
        self.seats.add(seat)
        try:
            yield seat
        except BaseException:
            seat.leave()
            raise

    async def watch(self) -> None:
        """End streams whose callers have lost their credentials, for as long as this runs."""
        while True:
            await asyncio.sleep(RECHECKED)
            for seat in list(self.seats):
                try:
                    await seat.recheck()
                except UnauthorizedError:
                    seat.end()
                except LangoError as error:
                    logger.info("a credential could not be checked again: %s", error)

    def _check(self, who: Caller) -> None:
        of_tenant = [seat.holder for seat in self.seats if seat.tenant == who.tenant]
        for owner, count, most in (
            ("key", of_tenant.count(_holder(who)), self._limits.of_key),
            ("tenant", len(of_tenant), self._limits.of_tenant),
        ):
            if count >= most:
                raise KeyLimitError(
                    f"This {owner} may have {most} streams at a time on a server, and has them: "
                    f"close some. The operator can raise server.max_streams_per_{owner}.",
                    limit="streams",
                )

    def drain(self) -> None:
        """End all streams, and begin none."""
        self._is_draining = True
        for seat in self.seats:
            seat.end()


def _holder(who: Caller) -> tuple[str, str | None]:
    """Whose limits count: a key's, or those of the user that a token names."""
    return (who.key_id, None) if who.key_id else ("", who.user)


class EventStream(StreamingResponse):
    """Answers with a stream; whoever reads it may go away without harm to the turn."""

    def __init__(
        self, seat: Seat, source: AsyncGenerator[bytes], headers: dict[str, str] | None = None
    ) -> None:
        self._seat = seat
        self._pipe = _Pipe(source)
        body = self._pipe.chunks(seat.heartbeat)
        super().__init__(body, headers=_HEADERS | (headers or {}), media_type=MEDIA_TYPE)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send until the source or the client ends."""
        pump = self._pipe.start()
        self._seat.run(pump)
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._seat.leave()
            pump.cancel()
            await asyncio.wait([pump])


class _Pipe:
    """Reads ahead of a client, so that a beat can be sent while nothing comes."""

    def __init__(self, source: AsyncGenerator[bytes]) -> None:
        self._source = source
        self._waiting: list[bytes] = []
        self._some = Ear()
        self._room = asyncio.Event()
        self._is_over = False

    def start(self) -> asyncio.Task[None]:
        """Begin to read; the task that does."""
        pump = asyncio.create_task(self._read())
        pump.add_done_callback(self._over)
        return pump

    def _over(self, _: object) -> None:
        self._is_over = True
        self._some.wake()

    async def _read(self) -> None:
        try:
            async with aclosing(self._source):
                async for each in self._source:
                    self._waiting.append(each)
                    self._some.wake()
                    while len(self._waiting) >= _AHEAD:
                        self._room.clear()
                        await self._room.wait()
        except TurnNotFoundError:
            logger.info("A stream ends, for its turn was deleted.")
        except Exception:
            logger.exception("A stream ends early; its client can go on from where it is.")

    async def chunks(self, heartbeat: float) -> AsyncIterator[bytes]:
        """What has come, as soon as it comes; a comment when nothing does."""
        while self._waiting or not self._is_over:
            if not self._waiting and not await self._some.wait(heartbeat):
                yield _COMMENT
            elif self._waiting:
                chunk = b"".join(self._waiting)
                self._waiting.clear()
                self._room.set()
                yield chunk
