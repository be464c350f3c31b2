"""Server-sent events: a turn's log from any event number, for a limited number of streams.

Uses Starlette's own streaming. Not sse-starlette: it replaces uvicorn's signal handler when it is
imported, and runs four tasks for each stream.
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

from lango.core.turns.events import ReasoningDelta
from lango.core.values import json_text
from lango.errors import (
    KeyLimitError,
    LangoError,
    ServerBusyError,
    TurnNotFoundError,
    UnauthorizedError,
)
from lango.server.auth.callers import Caller
from lango.store.turns.log import LoggedEvent
from lango.turns.wake import Subscription

logger = logging.getLogger(__name__)

Recheck = Callable[[], Awaitable[None]]

MEDIA_TYPE: Final = "text/event-stream"
HEARTBEAT: Final = 15.0
RECHECKED: Final = 15.0
"""Seconds between two checks of the credentials of open streams."""
_COMMENT: Final = b":\n\n"
_HEADERS: Final = {
    "Cache-Control": "no-cache, no-transform",  # no proxy may buffer or compress it
    "X-Accel-Buffering": "no",
}
_AHEAD: Final = 1_000  # events read ahead for a slow client


def frame(turn_id: str, event: LoggedEvent) -> bytes:
    """An event as a frame of server-sent events."""
    timestamp = datetime.fromtimestamp(event.at, UTC).isoformat().replace("+00:00", "Z")
    is_part = event.length is not None
    event_id = str(event.position) if is_part else event.number
    fields = {"id": event_id, "type": event.type, "turn": turn_id, "at": timestamp} | event.data
    return f"id: {event_id}\nevent: {event.type}\ndata: {json_text(fields)}\n\n".encode()


async def frames(
    turn_id: str, events: AsyncGenerator[LoggedEvent], *, thoughts: bool
) -> AsyncGenerator[bytes]:
    """A log as frames; the model's thoughts only with `thoughts`."""
    async with aclosing(events):
        async for event in events:
            if thoughts or event.type != ReasoningDelta.type:
                yield frame(turn_id, event)


class StreamSlot:
    """The slot of one stream among those of a process."""

    def __init__(self, streams: Streams, caller: Caller, recheck: Recheck) -> None:
        self.recheck = recheck
        self.tenant, self.holder = caller.tenant, _holder(caller)
        self.heartbeat = streams.heartbeat
        self._streams = streams
        self._pump: asyncio.Task[object] | None = None
        self._is_over = False

    def run(self, pump: asyncio.Task[object]) -> None:
        """Set the task that feeds the stream; it is cancelled with the stream."""
        self._pump = pump
        if self._is_over:
            pump.cancel()

    def end(self) -> None:
        """End the stream but not its turn: the client can reconnect to any server."""
        self._is_over = True
        if self._pump is not None:
            self._pump.cancel()

    def leave(self) -> None:
        """Release the slot."""
        self._streams.slots.discard(self)


@dataclass(frozen=True)
class StreamLimits:
    """How many streams one process may have at a time.

    None means four fifths of `most` for a tenant, and half of it for a key.
    """

    most: int
    per_tenant: int | None = None
    per_key: int | None = None

    @property
    def of_tenant(self) -> int:
        """The limit of one tenant."""
        return max(self.most * 4 // 5, 1) if self.per_tenant is None else self.per_tenant

    @property
    def of_key(self) -> int:
        """The limit of one credential."""
        return max(self.most // 2, 1) if self.per_key is None else self.per_key


class Streams:
    """The streams of one process: limited in number, and all ended when it stops."""

    def __init__(self, limits: StreamLimits, heartbeat: float = HEARTBEAT) -> None:
        self.heartbeat = heartbeat
        self.slots: set[StreamSlot] = set()
        self._limits = limits
        self._is_draining = False

    @contextmanager
    def opening(self, caller: Caller, recheck: Recheck) -> Generator[StreamSlot]:
        """Reserve a stream slot for a response made within; ServerBusyError if none is free.

        KeyLimitError if the caller's key, or its tenant, has reached its limit. `watch` calls
        `recheck` every RECHECKED seconds, and ends the stream when it raises UnauthorizedError.
        """
        if self._is_draining or len(self.slots) >= self._limits.most:
            raise ServerBusyError
        self._check(caller)
        slot = StreamSlot(self, caller, recheck)
        self.slots.add(slot)
        try:
            yield slot
        except BaseException:
            slot.leave()
            raise

    async def watch(self) -> None:
        """End streams whose callers' credentials are no longer valid, until cancelled."""
        while True:
            await asyncio.sleep(RECHECKED)
            for slot in list(self.slots):
                try:
                    await slot.recheck()
                except UnauthorizedError:
                    slot.end()
                except LangoError as error:
                    logger.info("a credential could not be checked again: %s", error)
                except Exception:  # the other streams must be checked nevertheless
                    logger.exception("a credential could not be checked again")

    def _check(self, caller: Caller) -> None:
        of_tenant = [slot.holder for slot in self.slots if slot.tenant == caller.tenant]
        for owner, count, limit in (
            ("key", of_tenant.count(_holder(caller)), self._limits.of_key),
            ("tenant", len(of_tenant), self._limits.of_tenant),
        ):
            if count >= limit:
                raise KeyLimitError(
                    f"This {owner} may have {limit} streams at a time on a server, and has them: "
                    f"close some. The operator can raise server.max_streams_per_{owner}.",
                    limit="streams",
                )

    def drain(self) -> None:
        """End all streams, and refuse new ones."""
        self._is_draining = True
        for slot in self.slots:
            slot.end()


def _holder(caller: Caller) -> tuple[str, str | None]:
    """The holder whose limit counts: the key, or without one the user."""
    return (caller.key_id, None) if caller.key_id else ("", caller.user)


class EventStream(StreamingResponse):
    """A streaming response. If the client disconnects, the turn continues.

    `when_cut` is sent last if the server ends the stream before its source ends.
    """

    def __init__(
        self,
        slot: StreamSlot,
        source: AsyncGenerator[bytes],
        headers: dict[str, str] | None = None,
        *,
        when_cut: bytes = b"",
    ) -> None:
        self._slot = slot
        self._pipe = _Pipe(source, when_cut)
        body = self._pipe.chunks(slot.heartbeat)
        super().__init__(body, headers=_HEADERS | (headers or {}), media_type=MEDIA_TYPE)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send until the source ends or the client disconnects."""
        pump = self._pipe.start()
        self._slot.run(pump)
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._slot.leave()
            pump.cancel()
            await asyncio.wait([pump])


class _Pipe:
    """Reads ahead of a client, so that a heartbeat can be sent while the source is silent."""

    def __init__(self, source: AsyncGenerator[bytes], when_cut: bytes) -> None:
        self._source = source
        self._when_cut = when_cut
        self._waiting: list[bytes] = []
        self._some = Subscription()
        self._room = asyncio.Event()
        self._is_over = False

    def start(self) -> asyncio.Task[None]:
        """Start reading, and return the task that reads."""
        pump = asyncio.create_task(self._read())
        pump.add_done_callback(self._over)
        return pump

    def _over(self, _: object) -> None:
        self._is_over = True
        if self._when_cut:
            self._waiting.append(self._when_cut)
        self._some.wake()

    async def _read(self) -> None:
        try:
            async with aclosing(self._source):
                async for chunk in self._source:
                    self._waiting.append(chunk)
                    self._some.wake()
                    while len(self._waiting) >= _AHEAD:
                        self._room.clear()
                        await self._room.wait()
            self._when_cut = b""
        except TurnNotFoundError:
            logger.info("A stream ends, for its turn was deleted.")
        except Exception:
            logger.exception("A stream ends early; its client can resume it by Last-Event-ID.")

    async def chunks(self, heartbeat: float) -> AsyncIterator[bytes]:
        """What the source yields, as it comes; a comment after `heartbeat` seconds of silence."""
        while self._waiting or not self._is_over:
            if not self._waiting and not await self._some.wait(heartbeat):
                yield _COMMENT
            elif self._waiting:
                chunk = b"".join(self._waiting)
                self._waiting.clear()
                self._room.set()
                yield chunk
