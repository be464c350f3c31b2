"""Server-sent events: the log of a turn on a wire, from any number, to as many as fit.

Starlette's own streaming carries it. sse-starlette was left out: it replaces uvicorn's signal
handler when it is imported, and runs four tasks for each stream.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Generator
from contextlib import aclosing, contextmanager
from datetime import UTC, datetime
from typing import Final

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from lango.core.turns import ThoughtDelta
from lango.core.values import json_text
from lango.errors import ServerBusyError, TurnNotFoundError
from lango.store.turn_log import LoggedEvent
from lango.turns.wake import Ear

logger = logging.getLogger(__name__)

MEDIA_TYPE: Final = "text/event-stream"
HEARTBEAT: Final = 15.0
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

    def __init__(self, streams: Streams) -> None:
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


class Streams:
    """The streams of one process: so many at most, and all of them ended when it stops."""

    def __init__(self, most: int, heartbeat: float = HEARTBEAT) -> None:
        self.heartbeat = heartbeat
        self.seats: set[Seat] = set()
        self._most = most
        self._is_draining = False

    @contextmanager
    def opening(self) -> Generator[Seat]:
        """A seat for the response that is made within; ServerBusyError if there is none."""
        if self._is_draining or len(self.seats) >= self._most:
            raise ServerBusyError
        seat = Seat(self)
        self.seats.add(seat)
        try:
            yield seat
        except BaseException:
            seat.leave()
            raise

    def drain(self) -> None:
        """End all streams, and begin none."""
        self._is_draining = True
        for seat in self.seats:
            seat.end()


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
