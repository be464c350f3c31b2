"""Events of this process's attempts, delivered to local subscribers without the log."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass

from lango.core.turns.events import End, Event
from lango.store.sessions.entries import SessionKey
from lango.store.turns.log import LoggedEvent
from lango.store.turns.rows import Claim, Turn


@dataclass(frozen=True, slots=True)
class AttemptBegun:
    """An attempt begins: its events follow those that the log held at the claim."""

    claim: Claim


@dataclass(frozen=True, slots=True)
class AttemptOver:
    """The attempt has ended: the turn closed with `end`, or another worker owns it (None)."""

    end: End | None


FeedItem = AttemptBegun | Event | AttemptOver | LoggedEvent | Exception
"""An item of a feed: from an attempt, from the log, or the error that reading the log raised."""
Feed = asyncio.Queue[FeedItem]
Observer = Callable[[Turn, AttemptBegun | Event | AttemptOver], None]


class Feeds:
    """Subscriptions to the turns of this process.

    The key is a turn's session and idempotency key: both are known before the turn is submitted,
    so a subscriber misses no event.
    """

    def __init__(self) -> None:
        self._feeds: dict[tuple[SessionKey, str], list[Feed]] = {}
        self.observer: Observer | None = None
        """Receives the items of all turns."""

    @contextmanager
    def subscribe(self, session: SessionKey, key: str) -> Generator[Feed]:
        """Subscribe to the events of a turn's attempts, from now on."""
        feed = Feed()
        self._feeds.setdefault((session, key), []).append(feed)
        try:
            yield feed
        finally:
            self._feeds[session, key].remove(feed)
            if not self._feeds[session, key]:
                del self._feeds[session, key]

    def publish(self, turn: Turn, item: AttemptBegun | Event | AttemptOver) -> None:
        """Publish to the subscribers of a turn."""
        if self.observer is not None:
            self.observer(turn, item)
        for feed in self._feeds.get((turn.session, turn.idempotency_key), ()):
            feed.put_nowait(item)

    def end(self, error: Exception) -> None:
        """Publish to all subscribers an error that ends their feeds."""
        for feeds in self._feeds.values():
            for feed in feeds:
                feed.put_nowait(error)
